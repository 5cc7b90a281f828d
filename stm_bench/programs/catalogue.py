"""A shop's catalogue: 2,000 objects that all requests share, filtered, grouped and sorted by comprehensions."""

ROUNDS = 16


class Product:
    """What is sold: a name, a price in cents, a department and how many there are."""

    def __init__(self, number):
        self.name = f"product {number * 7919 % 2000}"
        self.price = number * 37 % 1000
        self.department = number % 17
        self.stock = number % 5


PRODUCTS = [Product(number) for number in range(2000)]


def cheapest(products, count):
    """For each department the cheapest of its products that are in stock and cost more than two, as (name, price)."""
    available = [product for product in products if product.stock and product.price > 200]
    departments = {}
    for product in available:
        departments.setdefault(product.department, []).append(product)
    return {
        department: [
            (product.name, product.price) for product in sorted(departments[department], key=lambda product: product.price)[:count]
        ]
        for department in sorted(departments)
    }


def run(n):
    checksum = 0
    for _ in range(n):
        offers = cheapest(PRODUCTS, 10)
        checksum += sum(price for offer in offers.values() for _, price in offer) + len(offers)
    return checksum
