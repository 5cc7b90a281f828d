TWINS = {}
