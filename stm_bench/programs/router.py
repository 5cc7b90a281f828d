"""Routing: requests through the rules of a site, nested by host and path, to the handler and its arguments."""

from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine
from tornado.routing import AnyMatches, HostMatches, PathMatches, Router, Rule, RuleRouter

ROUNDS = 180


class Handler:
    """Stands for the class that would answer."""

    def __init__(self, name):
        self.name = name


class Pages(Router):
    """A site's pages: finds (handler, arguments) for a request."""

    def __init__(self, pages):
        self.pages = pages

    def find_handler(self, request, **kwargs):
        for page in self.pages:
            matched = page.matcher.match(request)
            if matched is not None:
                return page.target, [*matched.get("path_args", ()), *matched.get("path_kwargs", {}).values()]
        return None


API = Pages(
    [
        Rule(PathMatches(r"/api/v1/users/?"), Handler("users")),
        Rule(PathMatches(r"/api/v1/users/(?P<user>\d+)"), Handler("user")),
        Rule(PathMatches(r"/api/v1/users/(?P<user>\d+)/orders"), Handler("orders")),
        Rule(PathMatches(r"/api/v1/users/(?P<user>\d+)/orders/(?P<order>\d+)"), Handler("order")),
        Rule(PathMatches(r"/api/v1/search"), Handler("search")),
        Rule(PathMatches(r"/api/v1/(.*)"), Handler("unknown")),
    ]
)
SITE = Pages(
    [
        Rule(PathMatches(r"/"), Handler("home")),
        Rule(PathMatches(r"/about"), Handler("about")),
        Rule(PathMatches(r"/blog/(\d{4})/(\d{2})/([\w-]+)"), Handler("article")),
        Rule(PathMatches(r"/blog/tag/([^/]+)"), Handler("tag")),
        Rule(PathMatches(r"/static/(.*)"), Handler("static")),
        Rule(PathMatches(r"/login"), Handler("login")),
        Rule(PathMatches(r"/(.*)"), Handler("missing")),
    ]
)
ROUTES = RuleRouter(
    [
        Rule(HostMatches(r"static\.example\.org"), SITE),
        Rule(PathMatches(r"/api/.*"), API),
        Rule(AnyMatches(), SITE),
    ]
)

REQUESTS = [
    ("/", "www.example.org"),
    ("/about?from=footer", "www.example.org"),
    ("/blog/2024/05/one-loop-on-every-core", "www.example.org"),
    ("/blog/tag/python", "www.example.org"),
    ("/static/css/site.css?v=123456", "static.example.org"),
    ("/api/v1/users", "www.example.org"),
    ("/api/v1/users/1234", "www.example.org"),
    ("/api/v1/users/1234/orders/98765?fields=id,total&page=2", "www.example.org"),
    ("/api/v1/search?q=transaction+memory&limit=20", "www.example.org"),
    ("/api/v1/nothing/here", "www.example.org"),
    ("/no/such/page", "www.example.org"),
]


def run(n):
    checksum = 0
    for i in range(n):
        for uri, host in REQUESTS:
            start = RequestStartLine("GET", uri, "HTTP/1.1")
            request = HTTPServerRequest(start_line=start, headers=HTTPHeaders({"Host": host}))
            handler, arguments = ROUTES.find_handler(request)
            checksum += len(handler.name) + sum(len(argument) for argument in arguments) + len(request.arguments)
    return checksum
