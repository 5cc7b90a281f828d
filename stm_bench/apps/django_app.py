"""Django's ASGI application under uvicorn: ``GET /N`` answers the primes up to N."""

import django
import uvicorn
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import JsonResponse
from django.urls import path

from stm_bench.primes import primes


async def get(request, limit):
    return JsonResponse({"primes": primes(limit)})


urlpatterns = [path("<int:limit>", get)]


async def serve(port, given):
    settings.configure(SECRET_KEY="none", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None)
    django.setup()
    await uvicorn.Server(uvicorn.Config(get_asgi_application(), port=port, log_level="warning")).serve()
