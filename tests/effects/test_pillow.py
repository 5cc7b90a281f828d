"""Pillow: images are read by many transactions, and changed by the one that has made them."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from beside import is_irrevocable, needs_release, runs_beside_others, warmed_up
from meeting import APART, CONFLICT, Meeting, meet
from tornado.stm import core, testing

needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")


@pytest.fixture
def pil():
    """The module PIL.Image, which has loaded all that reads and writes files."""
    needs_release("PIL")
    from PIL import Image as image
    from PIL import ImageDraw, ImageFilter, ImageFont  # noqa: F401, what they import is not imported in transactions

    image.init()
    return image


def picture(pil):
    return pil.linear_gradient("L").resize((16, 16)).convert("RGB")


@needs_threads
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP"])
def test_an_image_is_read_made_smaller_and_written_beside_others(pil, kind):
    file = io.BytesIO()
    picture(pil).save(file, kind)

    def thumbnail():
        image = pil.open(io.BytesIO(file.getvalue())).convert("RGB")
        image.thumbnail((8, 8))
        smaller = io.BytesIO()
        image.save(smaller, kind)
        return smaller.getvalue()

    assert runs_beside_others(thumbnail) == thumbnail()


@needs_threads
def test_an_image_of_ones_own_is_changed_and_drawn_into_beside_others(pil):
    from PIL import ImageDraw, ImageFilter, ImageFont

    font, shared = ImageFont.load_default(12), picture(pil)

    def make():
        image = pil.new("RGB", (40, 30), "white")
        draw = ImageDraw.Draw(image)
        draw.line([[0, 0], [20, 20]], fill="red")
        draw.rectangle((1, 2, 9, 9), outline=(1, 2, 3))
        draw.text((2, 10), "text", font=font, fill="blue")
        image.paste(shared, (3, 3), shared.convert("L"))
        image.load()[0, 0] = 7, 8, 9
        image.putpixel((1, 0), image.getpixel((0, 0)))
        image = pil.merge("RGB", image.filter(ImageFilter.GaussianBlur(1)).rotate(90).split())
        return image.quantize(16).convert("RGB").tobytes(), image.histogram(), image.getbbox(), draw.textbbox((0, 0), "text", font=font)

    assert runs_beside_others(make) == make()
    assert meet(lambda: (), make, make) == APART


@needs_threads
def test_looks_at_an_image_keep_nobody_out(pil):
    assert meet(lambda: (picture(pil),), lambda image: image.resize((5, 5)).tobytes(), lambda image: image.getpixel((0, 0))) == APART


def put_by_access(image):
    image.load()[0, 0] = 1, 2, 3


def draw_line(image):
    from PIL import ImageDraw

    ImageDraw.Draw(image).line([(0, 0), (3, 3)], fill="red")


@needs_threads
@pytest.mark.parametrize("change", [
    lambda image: image.putpixel((0, 0), (1, 2, 3)), lambda image: image.paste((1, 2, 3), (0, 0, 4, 4)), put_by_access, draw_line,
    lambda image: image.frombytes(bytes(16 * 16 * 3)), lambda image: image.putalpha(3),
], ids=["putpixel", "paste", "access", "draw", "frombytes", "putalpha"])  # fmt: skip
def test_changes_of_an_image_keep_out_who_looks_at_it(pil, change):
    warmed_up(lambda: change(picture(pil)))
    assert Meeting(lambda: (picture(pil),), lambda image: image.getpixel((0, 0)), change).run() == CONFLICT


@needs_threads
def test_the_colours_of_an_image_are_found_by_one_at_a_time(pil):
    """Its palette remembers which of them is next to another one."""
    palette = pil.new("P", (1, 1))
    palette.putpalette([i % 256 for i in range(768)])
    image = picture(pil)

    def find():
        return image.quantize(palette=palette).tobytes(), is_irrevocable()

    assert runs_beside_others(find) == (image.quantize(palette=palette).tobytes(), True)


@needs_threads
def test_changes_of_images_are_serializable(pil):
    from PIL import ImageDraw

    def stamp(heap, n):
        heap["n"] += 1
        heap["canvas"].paste(heap["logo"].resize((4, 4)), (n, n))
        return heap["canvas"].getpixel((n, n)), heap["n"]

    def draw(heap, n):
        ImageDraw.Draw(heap["canvas"]).line([(0, n), (15, 15 - n)], fill=(n, 3, 5))
        heap["n"] += 1

    def turn(heap, n):
        heap["canvas"] = image = heap["canvas"].rotate(90)
        image.putpixel((n, 0), (9, n, 9))
        return image.tobytes()

    def load(heap, n):
        return heap["file"].resize((n, n)).tobytes(), heap["n"]

    file = io.BytesIO()
    picture(pil).save(file, "PNG")

    def make():
        return {"canvas": pil.new("RGB", (16, 16)), "logo": picture(pil), "n": 0, "file": pil.open(io.BytesIO(file.getvalue()))}

    def observe(heap):
        return {name: value.tobytes() if isinstance(value, pil.Image) else value for name, value in heap.items()}

    calls = [(function, n) for n in range(1, 7) for function in (stamp, draw, turn, load)]
    testing.check_serializable(make, calls, runs=10, seed=1, aborts=0.004, observe=observe)


IMAGE_OF_A_BUFFER = """
import sys
from PIL import Image
from tornado.stm import activation, core
from tornado.stm.core import trusted
activation.activate()

@trusted
def is_alone():
    return core.is_exclusive()

def look(image):
    return image.getpixel((0, 0)), is_alone()

def use_own():
    image = Image.new("L", (2, 2), 5)
    image.putpixel((1, 1), 6)
    return look(image)

image = Image.new("L", (2, 2), 7)
buffer = eval(sys.argv[1])
view = Image.frombuffer("L", (2, 2), buffer, "raw", "L", 0, 1)
print(*(core.Transaction(look, (each,)).run() for each in (image, view)), core.Transaction(use_own, ()).run())
"""


@needs_threads
@pytest.mark.parametrize("buffer, alone", [("bytes(4)", False), ("bytearray(4)", True), ("memoryview(bytearray(4)).toreadonly()", True)])
def test_an_image_in_memory_that_others_may_write_to_is_used_alone(pil, buffer, alone):
    done = subprocess.run([sys.executable, "-c", IMAGE_OF_A_BUFFER, buffer], capture_output=True, text=True, timeout=100)
    assert (done.stderr, done.stdout) == ("", f"(7, False) (0, {alone}) (5, False)\n")


@needs_threads
def test_too_many_images_in_memory_of_others_end_the_sharing_of_all(pil):
    """The engine remembers where they are, in a table of bounded size."""
    views = 'views = [Image.frombuffer("L", (2, 2), buffer, "raw", "L", 0, 1) for _ in range(1100)]'
    many = IMAGE_OF_A_BUFFER.replace("\nprint(", f"\n{views}\nprint(")
    done = subprocess.run([sys.executable, "-c", many, "bytearray(4)"], capture_output=True, text=True, timeout=100)
    assert (done.stderr, done.stdout) == ("", "(7, True) (0, True) (5, False)\n")


@needs_threads
def test_images_are_known_where_a_link_leads_to_the_library(pil, tmp_path):
    """As in an environment whose folder is reached through a link."""
    (tmp_path / "packages").symlink_to(Path(pil.__file__).parents[1])
    program = IMAGE_OF_A_BUFFER.replace("import sys", f"import sys; sys.path.insert(0, {str(tmp_path / 'packages')!r})", 1)
    done = subprocess.run([sys.executable, "-c", program + "print(Image.__file__)", "bytes(4)"], capture_output=True, text=True, timeout=100)
    assert (done.stderr, done.stdout) == ("", f"(7, False) (0, False) (5, False)\n{tmp_path}/packages/PIL/Image.py\n")
