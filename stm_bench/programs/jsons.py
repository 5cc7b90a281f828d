"""JSON: a document of a shop's order is encoded and decoded as services do it: compact, and indented for people.

The compact form is made by the C part of the json module, the indented one by its Python part.
"""

import json

ROUNDS = 200

ORDER = {
    "id": "4a1f0c9e-77",
    "created": "2026-03-14T15:09:26Z",
    "customer": {
        "id": 123456,
        "name": "Zoë O'Neill",
        "emails": ["zoe@example.org", "z.oneill@example.com"],
        "address": {"street": "12 Main Street", "city": "Cork", "zip": "T12 X8F2", "country": "IE"},
        "newsletter": False,
        "discount": None,
    },
    "lines": [
        {
            "sku": "ART-%05d" % (7919 * number % 100000),
            "title": "Article \N{NUMERO SIGN}%d" % number,
            "quantity": number % 5 + 1,
            "price": round(3.99 + number * 1.25, 2),
            "tags": ["tag%d" % (number % 7), "sale"] if number % 3 else [],
            "options": {"colour": ["red", "green", "blue"][number % 3], "gift": number % 2 == 0},
        }
        for number in range(12)
    ],
    "totals": {"net": 129.38, "tax": 29.76, "gross": 159.14, "currency": "EUR"},
}


def run(n):
    checksum = 0
    for i in range(n):
        order = {**ORDER, "revision": i}
        text = json.dumps(order, separators=(",", ":"))
        decoded = json.loads(text)
        decoded["lines"].append({"sku": "SHIPPING", "quantity": 1, "price": 4.9})
        pretty = json.dumps(decoded, indent=2, sort_keys=True)
        checksum += len(text) + len(pretty) + sum(line["quantity"] for line in json.loads(pretty)["lines"])
    return checksum
