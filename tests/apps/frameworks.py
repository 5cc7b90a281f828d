"""The same small site by several frameworks: a page by a template, a form, rows of a database, an error.

``python frameworks.py NAME`` serves it on a free port, which is printed.
"""

import asyncio
import html
import logging
import socket
import sqlite3
import sys
import tempfile

ROWS = 50
PATH = f"{tempfile.mkdtemp()}/site.db"
TEMPLATE = "<h1>{{ title }}</h1><ul>{% for row in rows %}<li>{{ row }}</li>{% endfor %}</ul>"


def prepare():
    with sqlite3.connect(PATH) as db:
        db.execute("CREATE TABLE notes (k INTEGER PRIMARY KEY, text TEXT)")
        db.executemany("INSERT INTO notes VALUES (?, ?)", [(k, f"<{k}>") for k in range(ROWS)])
    db.close()


def notes(first):
    """Some rows, by a connection of the request's own."""
    db = sqlite3.connect(PATH)
    db.row_factory = sqlite3.Row
    try:
        return [f"{row['k']}: {row['text']}" for row in db.execute("SELECT * FROM notes WHERE k >= ? ORDER BY k LIMIT 5", (first,))]
    finally:
        db.close()


def note(k, text):
    """A row is changed."""
    with sqlite3.connect(PATH) as db:
        db.execute("UPDATE notes SET text = ? WHERE k = ?", (text, k))
    db.close()


def page_by_hand(n):
    """What the template makes, where a framework has none of its own."""
    items = "".join(f"<li>{row}</li>" for row in range(n))
    return f"<h1>{html.escape(f'<page {n}>')}</h1><ul>{items}</ul>"


def greeting(name):
    return f"hello, {html.escape(name)}"


def flask():
    """By Tornado's WSGIContainer."""
    import flask
    from tornado.wsgi import WSGIContainer

    app = flask.Flask("site")
    app.add_url_rule("/page/<int:n>", "page", lambda n: flask.render_template_string(TEMPLATE, title=f"<page {n}>", rows=range(n)))
    app.add_url_rule("/form", "form", lambda: greeting(flask.request.form["name"]), methods=["POST"])
    app.add_url_rule("/notes/<int:n>", "notes", lambda n: notes(n))
    app.add_url_rule("/note/<int:n>", "note", lambda n: note(n, flask.request.form["text"]) or "noted", methods=["POST"])
    app.add_url_rule("/error/<int:n>", "error", lambda n: str(1 / (n - n)))
    return WSGIContainer(app)


def quart():
    import quart

    app = quart.Quart("site")

    async def form():
        return greeting((await quart.request.form)["name"])

    async def change(n):
        return note(n, (await quart.request.form)["text"]) or "noted"

    async def page(n):
        return await quart.render_template_string(TEMPLATE, title=f"<page {n}>", rows=range(n))

    async def rows(n):
        return notes(n)

    async def error(n):
        return str(1 / (n - n))

    app.add_url_rule("/page/<int:n>", "page", page)
    app.add_url_rule("/form", "form", form, methods=["POST"])
    app.add_url_rule("/notes/<int:n>", "notes", rows)
    app.add_url_rule("/note/<int:n>", "note", change, methods=["POST"])
    app.add_url_rule("/error/<int:n>", "error", error)
    return app


def django():
    import django
    from django.conf import settings
    from django.core.asgi import get_asgi_application
    from django.http import HttpResponse, JsonResponse
    from django.template import Context, Engine
    from django.urls import path

    settings.configure(SECRET_KEY="none", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None)
    template = Engine().from_string(TEMPLATE)

    async def page(request, n):
        return HttpResponse(template.render(Context({"title": f"<page {n}>", "rows": range(n)})))

    async def form(request):
        return HttpResponse(greeting(request.POST["name"]))

    async def rows(request, n):
        return JsonResponse(notes(n), safe=False)

    async def change(request, n):
        return HttpResponse(note(n, request.POST["text"]) or "noted")

    async def error(request, n):
        return HttpResponse(str(1 / (n - n)))

    globals()["urlpatterns"] = [
        path("page/<int:n>", page), path("form", form), path("notes/<int:n>", rows), path("note/<int:n>", change), path("error/<int:n>", error)
    ]  # fmt: skip
    django.setup()
    return get_asgi_application()


def litestar():
    from typing import Annotated

    from litestar import Litestar, get, post
    from litestar.enums import MediaType, RequestEncodingType
    from litestar.params import Body

    Form = Annotated[dict[str, str], Body(media_type=RequestEncodingType.URL_ENCODED)]

    @get("/page/{n:int}", media_type=MediaType.HTML)
    async def page(n: int) -> str:
        return page_by_hand(n)

    @post("/form", media_type=MediaType.HTML, status_code=200)
    async def form(data: Form) -> str:
        return greeting(data["name"])

    @get("/notes/{n:int}")
    async def rows(n: int) -> list[str]:
        return notes(n)

    @post("/note/{n:int}", media_type=MediaType.HTML, status_code=200)
    async def change(n: int, data: Form) -> str:
        return note(n, data["text"]) or "noted"

    @get("/error/{n:int}")
    async def error(n: int) -> str:
        return str(1 / (n - n))

    return Litestar([page, form, rows, change, error], logging_config=None)


def sanic():
    """As an ASGI application."""
    from sanic import Sanic
    from sanic import response as answer

    app = Sanic("site", configure_logging=False)

    async def page(request, n):
        return answer.html(page_by_hand(n))

    async def form(request):
        return answer.html(greeting(request.form.get("name")))

    async def rows(request, n):
        return answer.json(notes(n))

    async def change(request, n):
        return answer.text(note(n, request.form.get("text")) or "noted")

    async def error(request, n):
        return answer.text(str(1 / (n - n)))

    app.add_route(page, "/page/<n:int>")
    app.add_route(form, "/form", methods=["POST"])
    app.add_route(rows, "/notes/<n:int>")
    app.add_route(change, "/note/<n:int>", methods=["POST"])
    app.add_route(error, "/error/<n:int>")
    return app


async def serve(app, sock):
    if type(app).__name__ == "WSGIContainer":
        import tornado.httpserver

        sock.setblocking(False)
        tornado.httpserver.HTTPServer(app).add_sockets([sock])
        await asyncio.Event().wait()
    else:
        import uvicorn

        await uvicorn.Server(uvicorn.Config(app, log_level="critical")).serve([sock])


FRAMEWORKS = {"flask": flask, "quart": quart, "django": django, "litestar": litestar, "sanic": sanic}

if __name__ == "__main__":
    prepare()
    logging.disable()  # errors are on purpose
    app = FRAMEWORKS[sys.argv[1]]()
    listening = socket.create_server(("127.0.0.1", 0), backlog=200)
    print(listening.getsockname()[1], flush=True)
    asyncio.run(serve(app, listening))
