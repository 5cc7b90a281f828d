"""A template: a page of tornado.template with inheritance, loops, conditions, expressions and escaping."""

import zlib

from tornado.template import DictLoader

ROUNDS = 90

SOURCES = {
    "base.html": """\
<!DOCTYPE html>
<html>
<head><title>{% block title %}Shop{% end %}</title></head>
<body>
{% block body %}{% end %}
<footer>{{ footer }}</footer>
</body>
</html>
""",
    "list.html": """\
{% extends "base.html" %}
{% block title %}{{ title }} ({{ len(products) }}){% end %}
{% block body %}
<h1>{{ title.upper() }}</h1>
<table>
{% for number, product in enumerate(products) %}
  <tr class="{{ 'odd' if number % 2 else 'even' }}">
    <td>{{ product.name }}</td>
    <td>{{ "%.2f" % product.price }}</td>
    {% if product.stock == 0 %}<td>sold out</td>
    {% elif product.stock < 5 %}<td>only {{ product.stock }} left</td>
    {% else %}<td>{{ product.stock }}</td>{% end %}
    <td>{% for tag in product.tags %}<a href="{{ link(tag) }}">{{ tag }}</a> {% end %}</td>
  </tr>
{% end %}
</table>
{% set total = sum(product.price * product.stock for product in products) %}
<p>{{ len(products) }} products, {{ "%.2f" % total }} in stock; {% raw note %}</p>
{% end %}
""",
}


class Product:
    def __init__(self, number):
        self.name = 'Product "%d" <%s>' % (number, "x" * (number % 7))
        self.price = 1.5 + number * 0.75
        self.stock = number * 7 % 13
        self.tags = ["tag & %d" % (number % 3), "new"] if number % 4 else ["old"]


PAGE = DictLoader(SOURCES).load("list.html")
PRODUCTS = [Product(number) for number in range(25)]


def link(tag):
    return "/tags/" + tag.replace(" ", "+")


def run(n):
    checksum = 0
    for i in range(n):
        page = PAGE.generate(
            title="All of round %d" % i, products=PRODUCTS, link=link, footer="(c) A & B", note="<b>net</b>"
        )
        checksum += zlib.crc32(page)
    return checksum
