"""DeltaBlue: an incremental solver of one-way constraints (after Sannella, Maloney, Freeman-Benson and Borning, 1993).

Every variable has a *walk strength*: that of the weakest constraint that would have to give way for the variable to be
set anew.  A constraint enforces itself by overriding what is weaker; what it overrides looks for another variable.
"""

import enum

ROUNDS = 3

CHAIN, PAIRS, VALUES = 100, 50, 20
DOWNSTREAM_CHANGES = 3


class Strength(enum.IntEnum):
    """The smaller, the stronger."""

    REQUIRED = 0
    PREFERRED = 1
    STRONG = 2
    MEDIUM = 3
    WEAK = 4
    WEAKEST = 5


class Variable:
    def __init__(self, name, value=0):
        self.name = name
        self.value = value
        self.constraints = []
        self.determined_by = None
        self.mark = 0
        self.walk_strength = Strength.WEAKEST
        self.stay = True  # is it the same at every execution of a plan?


class Constraint:
    """A relation between variables, enforced by one of its methods: the one that sets `output`.

    Invariant: `output` is None unless the constraint is enforced, and then ``output.determined_by`` is the constraint.
    """

    is_input = False  # does its value come from outside?

    def __init__(self, strength, *variables):
        self.strength = strength
        self.variables = variables
        self.output = None

    def candidates(self):
        """The variables that the constraint has methods to set."""
        return self.variables

    def inputs(self):
        return [variable for variable in self.variables if variable is not self.output]

    def choose_output(self, mark):
        """Takes the method that overrides the weakest; none if all are as strong as this or settled by `mark`."""
        self.output = None
        weakest = self.strength
        for variable in self.candidates():
            if variable.mark != mark and variable.walk_strength > weakest:
                self.output = variable
                weakest = variable.walk_strength

    def inputs_known(self, mark):
        for variable in self.inputs():
            if variable.mark != mark and not variable.stay and variable.determined_by is not None:
                return False
        return True

    def recalculate(self):
        """Brings what follows from the inputs up to date in the output."""
        output = self.output
        inputs = self.inputs()
        strengths = [self.strength]
        for variable in self.candidates():
            if variable is not output:
                strengths.append(variable.walk_strength)
        output.walk_strength = max(strengths)
        output.stay = not self.is_input and all(variable.stay for variable in inputs)
        if output.stay:
            self.execute()

    def execute(self):
        raise NotImplementedError


class Stay(Constraint):
    """The variable keeps its value."""

    def execute(self):
        pass


class Edit(Constraint):
    """The variable is set from outside."""

    is_input = True

    def execute(self):
        pass


class Equal(Constraint):
    """Two variables have one value."""

    def execute(self):
        first, second = self.variables
        if self.output is first:
            first.value = second.value
        else:
            second.value = first.value


class Scale(Constraint):
    """``result = source * scale + offset``; scale and offset are never set."""

    def candidates(self):
        return self.variables[:2]

    def execute(self):
        source, result, scale, offset = self.variables
        if self.output is result:
            result.value = source.value * scale.value + offset.value
        else:
            source.value = (result.value - offset.value) // scale.value


class Planner:
    def __init__(self):
        self.last_mark = 0

    def new_mark(self):
        self.last_mark += 1
        return self.last_mark

    def add(self, constraint):
        for variable in constraint.variables:
            variable.constraints.append(constraint)
        mark = self.new_mark()
        overridden = self.enforce(constraint, mark)
        while overridden is not None:
            overridden = self.enforce(overridden, mark)

    def enforce(self, constraint, mark):
        """Enforces the constraint if it can be; returns the one that had to give way, or None."""
        constraint.choose_output(mark)
        output = constraint.output
        if output is None:
            if constraint.strength is Strength.REQUIRED:
                raise ValueError("a required constraint cannot be enforced")
            return None
        for variable in constraint.inputs():
            variable.mark = mark
        overridden = output.determined_by
        if overridden is not None:
            overridden.output = None
        output.determined_by = constraint
        self.propagate(constraint, mark)
        output.mark = mark
        return overridden

    def propagate(self, constraint, mark):
        """Recalculates what is downstream of the constraint."""
        todo = [constraint]
        while todo:
            constraint = todo.pop()
            if constraint.output.mark == mark:
                raise ValueError("the constraints form a cycle")
            constraint.recalculate()
            todo.extend(self.consumers(constraint.output))

    def consumers(self, variable):
        """The enforced constraints that read the variable."""
        for constraint in variable.constraints:
            if constraint is not variable.determined_by and constraint.output is not None:
                yield constraint

    def remove(self, constraint):
        output = constraint.output
        constraint.output = None
        for variable in constraint.variables:
            variable.constraints.remove(constraint)
        if output is None:
            return
        for unenforced in self.released_by(output):
            mark = self.new_mark()
            overridden = self.enforce(unenforced, mark)
            while overridden is not None:
                overridden = self.enforce(overridden, mark)

    def released_by(self, output):
        """Recalculates downstream of a variable that nothing sets any more; returns what may now be enforced."""
        output.determined_by = None
        output.walk_strength = Strength.WEAKEST
        output.stay = True
        unenforced = []
        todo = [output]
        while todo:
            variable = todo.pop()
            unenforced += [each for each in variable.constraints if each.output is None]
            for constraint in self.consumers(variable):
                constraint.recalculate()
                todo.append(constraint.output)
        return sorted(unenforced, key=lambda each: each.strength)

    def plan(self, edits):
        """The constraints to execute, in order, whenever the edited variables have new values."""
        mark = self.new_mark()
        plan = []
        todo = [edit for edit in edits if edit.output is not None]
        while todo:
            constraint = todo.pop()
            output = constraint.output
            if output.mark != mark and constraint.inputs_known(mark):
                plan.append(constraint)
                output.mark = mark
                todo.extend(self.consumers(output))
        return plan

    def change(self, variable, value):
        """Sets a variable through an edit constraint, some times; what depends on it follows."""
        edit = Edit(Strength.PREFERRED, variable)
        self.add(edit)
        plan = self.plan([edit])
        for _ in range(DOWNSTREAM_CHANGES):
            variable.value = value
            for constraint in plan:
                constraint.execute()
        self.remove(edit)


def chain(length):
    """A chain of equal variables, edited at one end: the longest way that a change can go."""
    planner = Planner()
    variables = [Variable("v%d" % i) for i in range(length + 1)]
    for left, right in zip(variables, variables[1:]):
        planner.add(Equal(Strength.REQUIRED, left, right))
    first, last = variables[0], variables[-1]
    planner.add(Stay(Strength.STRONG, last))
    edit = Edit(Strength.PREFERRED, first)
    planner.add(edit)
    plan = planner.plan([edit])
    total = 0
    for value in range(VALUES):
        first.value = value
        for constraint in plan:
            constraint.execute()
        total += last.value
    planner.remove(edit)
    return total


def projection(pairs):
    """Points that are projected by one scale and one offset, set from either side: the widest change."""
    planner = Planner()
    scale, offset = Variable("scale", 10), Variable("offset", 1000)
    sources, results = [], []
    for i in range(pairs):
        source, result = Variable("source%d" % i, i), Variable("result%d" % i, i)
        sources.append(source)
        results.append(result)
        planner.add(Stay(Strength.MEDIUM, source))
        planner.add(Scale(Strength.REQUIRED, source, result, scale, offset))
    planner.change(sources[0], 17)
    forwards = results[0].value
    planner.change(results[0], 1050)
    backwards = sources[0].value
    planner.change(scale, 5)
    scaled = sum(result.value for result in results[1:])
    planner.change(offset, 2000)
    moved = sum(result.value for result in results[1:])
    return forwards, backwards, scaled, moved


def run(n):
    checksum = 0
    for _ in range(n):
        checksum += chain(CHAIN) + sum(projection(PAIRS))
    return checksum
