"""Random bytes for an HTTP server: requests that are almost right, and websockets that are.

Everything is drawn from one `Choices`; one seed gives one conversation.
"""

import base64
import gzip
import random
import struct
import zlib
from dataclasses import dataclass, field

METHODS = [b"GET"] * 8 + [b"POST"] * 8 + [b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"BREW"]
BAD_METHODS = [b"", b"get", b"CONNECT", b"TRACE", b"G ET", b"GET\t", b"G\x00T", b"\xc3\xa9", b"GET" * 500, b"(GET)", b"PRI"]
TARGETS = [
    b"/", b"/echo", b"/echo?a=1&b=2&a=3", b"/later", b"/later?x=%20", b"/upload", b"/upload?slow=1", b"/upload?limit=10",
    b"/upload?limit=100000", b"/refuse", b"/refuse?status=500", b"/refuse?status=401", b"/pieces", b"/pieces?fail=1",
    b"/pieces?pieces=0", b"/missing", b"/socket", b"/a/b/../c", b"/%41%zz%", b"*",
]
BAD_TARGETS = [
    b"", b"//", b"echo", b"http://test/echo", b"http://[::1/", b"/e cho", b"/\xff\xfe", b"/\x00", b"/e\tcho", b"/#x", b"?",
    b"/" + b"x" * 3000, b"/" + b"y" * 5000, b"/?" + b"&" * 500, b"/?a=%ff%fe", b"/%00", b"/upload?limit=x", b"/;a=b", b"/\\",
]
VERSIONS = [b"HTTP/1.1"] * 16 + [b"HTTP/1.0"] * 2
BAD_VERSIONS = [
    b"", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/11", b"HTTP/1.1.1", b"http/1.1", b"HTTP/1.", b"HTTP/1.1 ", b"HTTP/ 1.1",
    b"HTTP/\xd9\xa1.1", b"HTTP", b"XTTP/1.1", b"HTTP/1.1 x", b"HTTP/01.1", b"\x00",
]
HEADERS = [
    b"Accept: */*", b"Cookie: a=b; c=d", b"Cookie: a=\"b;c\"; =; x", b"X-Real-Ip: 10.0.0.1", b"X-Forwarded-For: 1.2.3.4, 5.6.7.8",
    b"X-Forwarded-For: 'x', ::1", b"X-Scheme: https", b"X-Forwarded-Proto: gopher", b"If-None-Match: *", b'If-None-Match: "x", W/"y"',
    b"Connection: close", b"Connection: keep-alive", b"Connection: Close", b"Connection: upgrade", b"Connection: keep-alive, close",
    b"Connection:", b"Expect: 100-continue", b"Expect: 200-maybe", b"Content-Type: application/json", b"Upgrade: h2c",
    b"Content-Type: application/x-www-form-urlencoded", b"Content-Type: multipart/form-data; boundary=b", b"Content-Encoding: gzip",
    b"Content-Type: multipart/form-data", b'Content-Type: multipart/form-data; boundary="b', b"Content-Encoding: br", b"TE: trailers",
    b"Trailer: X-End", b"Accept-Encoding: gzip", b"Range: bytes=0-1", b"Host: other", b"X: " + b"v" * 300, b"X-A: 1\r\nX-A: 2",
    b"X-Http-Method-Override: DELETE", b"Transfer-Encoding-X: chunked", b"Content-Length-X: 3", b"Authorization: Basic eDp5",
]
BAD_HEADERS = [
    b"no colon", b": no name", b"Sp ace: x", b"Space : x", b" Leading: x", b"\tTab: x", b"N\x00l: x", b"X: n\x00l", b"X: c\x01ntrol",
    b"X: \x7f", b"X: \xff\xfe", b"\xc3\xa9: x", b"X: a\r\n folded", b"X: a\r\n\tfolded", b"X:\r\n \r\n y", b"X: bare\rcr",
    b"X: vertical\x0btab", b"X: form\x0cfeed", b"X: next\xc2\x85line", b"X\r\n: y", b"", b":", b"X: " + b"v" * 5000,
    b"\r\n".join(b"H%d: %d" % (i, i) for i in range(150)), b"Host:", b"Host: a b", b"Host: a,b", b"Host: [::1]:x", b"Host: \xff",
    b"Host: a/../b", b"Host: h:99999999", b"HOST: twice", b"Content_Length: 5", b"(X): y", b"X@Y: z", b"X\x85: y", b"X: \xa0",
]
LENGTHS = [
    b"%d", b"%d ", b" %d", b"\t%d", b"+%d", b"-%d", b"0%d", b"0x%d", b"%d.0", b"%de0", b"%d_0", b"%d,%d", b"%d, %d", b"%d,", b",%d",
    b"%d;", b"\xd9\xa5%d", b"%d\x0b", b"%d\xa0", b'"%d"', b"", b"99999", b"999999999999999999999999", b"-1", b"16385", b"16384", b"x",
    b"%d\r\n 1", b"%d\r\nContent-Length: %d", b"%d\r\nContent-Length: 7%d", b"%d\r\ncontent-length:%d", b"%d\x00",
]
CODINGS = [
    b"chunked", b"chunked", b"chunked", b"chunked", b"Chunked", b"CHUNKED", b" chunked ", b"\tchunked", b"xchunked", b"chunkedx",
    b"identity", b"chunked, identity", b"identity, chunked", b"gzip, chunked", b"chunked, chunked", b"chunked,", b", chunked",
    b"\x0bchunked", b"chunked\x0b", b"chunked\x00", b'"chunked"', b"chunked;q=1", b"", b"chu\r\n nked", b"\r\n chunked", b"ch unked",
    b"identity\r\nTransfer-Encoding: chunked", b"chunked\r\nTransfer-Encoding: identity", b"gzip", b"chunked\xa0",
]
BODIES = [b"", b"x", b"hello", b"a=1&b=2", b'{"a": 1}', b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n", b"0\r\n\r\n", b"\r\n\r\n", b"y" * 3000]
MULTIPART = [
    b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nvalue\r\n--b--\r\n',
    b'--b\r\nContent-Disposition: form-data; name="f"; filename="x"\r\nContent-Type: text/plain\r\n\r\nfile\r\n--b--',
    b'--b\r\nContent-Disposition: form-data; name="f"; filename*=utf-8\'\'%e2%82\r\n\r\n\r\n--b--\r\n', b"--b\r\n\r\n--b--", b"--b--",
    b"--b\r\nContent-Disposition: attachment\r\n\r\nx\r\n--b--\r\n", b"--b\r\nX: y\r\n\r\nz",
]
CHUNK_SIZES = [
    b"%x", b"%X", b"0%x", b"000000%x", b"%x ", b" %x", b"+%x", b"-%x", b"0x%x", b"%x;ext", b"%x;name=value", b'%x;n="q\r"', b"%x; \xff",
    b"%x_", b"1_%x", b"%xg", b"", b"ffffffffffffffffff", b"-1", b"5001", b"%x\x00", b"%x\t", b"%x\n", b"%x;" + b"e" * 100,
]
BAD_ENDS = [b"\n", b"\r", b"", b"\r\r\n", b"\n\r", b"x\r\n", b"\r\n\r\n", b" \r\n"]
INTERESTING = [
    b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\n\n", b"\x00", b" ", b"\t", b":", b";", b",", b"\xff", b"\xc2\x85", b"0", b"9", b"-", b"+", b"/",
    b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\xa0", b"chunked", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n",
]


@dataclass
class Conversation:
    """What one connection sends.

    Attributes:
        requests: the bytes of each; some are sent only when those before have been answered (see `waits`).
        waits: numbers of the requests before which the client reads what has been answered.
        cuts: shares (0..1) of what is sent together at which it is split into several sends.
        reset: end by a reset in the middle of it all, instead of reading to the end.
    """

    requests: list
    waits: set = field(default_factory=set)
    cuts: list = field(default_factory=list)
    reset: bool = False

    def stages(self):
        """What to send until the next read: a list of pieces each."""
        stages, together = [], b""
        for number, request in enumerate(self.requests):
            if number in self.waits and together:
                stages.append(self._pieces(together))
                together = b""
            together += request
        return [*stages, self._pieces(together)]

    def _pieces(self, data):
        places = sorted({int(cut * len(data)) for cut in self.cuts} - {0})
        return [data[a:b] for a, b in zip([0, *places], [*places, len(data)]) if a < b]


class Choices(random.Random):
    """Random choices, of which some are bad: `hostility` says how many, as a factor."""

    def __init__(self, seed):
        super().__init__(seed)
        self.hostility = self.choice([0, 0.3, 0.3, 1, 3])

    def badly(self, often):
        """Should this go wrong, which it should so often (0..1)?"""
        return self.random() < often * self.hostility


def conversation(seed):
    """A random one."""
    choose = Choices(seed)
    if choose.random() < 0.15:
        requests = [handshake(choose), *(frames(choose) for _ in range(choose.randint(1, 4)))]
    else:
        requests = [request(choose) for _ in range(choose.choice([1, 1, 2, 3, 5]))]
    if choose.badly(0.2):
        which = choose.randrange(len(requests))
        requests[which] = mutated(choose, requests[which])
    waits = {number for number in range(1, len(requests)) if choose.random() < 0.3}
    cuts = [choose.random() for _ in range(choose.choice([0, 0, 1, 3]))]
    # Whoever is still in order answers this one.
    requests.append(b"GET /last HTTP/1.1\r\nHost: test\r\n\r\n")
    waits.add(len(requests) - 1)
    return Conversation(requests, waits, cuts, choose.random() < 0.05)


def mutated(choose, data):
    """With some bytes changed, anywhere."""
    for _ in range(choose.choice([1, 1, 2, 4])):
        at = choose.randrange(len(data) + 1)
        end = at + choose.choice([0, 0, 1, 1, 2, 10])
        how = choose.randrange(4)
        if how == 0:
            piece = choose.choice(INTERESTING)
        elif how == 1:
            piece = bytes([choose.randrange(256)])
        elif how == 2:
            piece = data[at:end] * 2
        else:
            piece = b""
        data = data[:at] + piece + data[end:]
    return data


# ---- Requests -------------------------------------------------------------------------------------------------------


def request(choose):
    """One request; each of its parts is bad now and then."""

    def some(good, bad, often=0.02):
        return choose.choice(bad if choose.badly(often) else good)

    method, target = some(METHODS, BAD_METHODS), some(TARGETS, BAD_TARGETS)
    line = some([b" "], [b"  ", b"\t"]).join([method, target, some(VERSIONS, BAD_VERSIONS)])
    headers = [] if choose.badly(0.02) else [b"Host: test"]
    headers += [some(HEADERS, BAD_HEADERS, 0.04) for _ in range(choose.choice([0, 1, 2, 4]))]
    body = b""
    if method not in (b"GET", b"HEAD") or choose.random() < 0.1:
        framing, body = framed(choose, any_body(choose, b"".join(headers)))
        headers += framing
    choose.shuffle(headers)
    end = lambda: some([b"\r\n"], BAD_ENDS, 0.01) if choose.random() < 0.95 else b"\n"  # noqa: E731
    junk = some([b""], [b"\r\n", b"\n", b" ", b"\x00", b"\r\n\r\n"], 0.05)
    return junk + b"".join(part + end() for part in [line, *headers, b""]) + body


def any_body(choose, headers):
    body = choose.choice(MULTIPART) if b"multipart" in headers else choose.choice(BODIES)
    if choose.random() < 0.03:
        body = b"z" * choose.choice([16383, 16384, 16385, 40000])
    if b"Content-Encoding: gzip" in headers and choose.random() < 0.9:
        body = gzip.compress(body * choose.choice([1, 1, 50]), mtime=0)
        if choose.badly(0.2):
            body = mutated(choose, body)
    return body


def framed(choose, body):
    """Headers that say how long the body is, and the body as they say; or not."""
    length = b"Content-Length: %d" % len(body)
    coding = b"Transfer-Encoding: " + (choose.choice(CODINGS) if choose.badly(0.1) else b"chunked")
    if choose.badly(0.03):
        return [], body
    if choose.badly(0.04):
        return [length, coding], choose.choice([body, chunked(choose, body)])
    if choose.badly(0.1):
        return [b"Content-Length:" + filled(choose.choice(LENGTHS), len(body))], body
    return choose.choice([([length], body), ([coding], chunked(choose, body))])


def filled(pattern, number):
    """The number in each place of the pattern."""
    return pattern.replace(b"%d", b"%d" % number).replace(b"%x", b"%x" % number).replace(b"%X", b"%X" % number)


def chunked(choose, body):
    """The body in chunks, some of them wrong."""
    pieces = []
    at = 0
    while at < len(body):
        size = choose.choice([1, 5, 100, 2000, len(body)])
        piece = body[at : at + size]
        pieces.append(chunk(choose, piece))
        at += size
    pieces.append(chunk(choose, b"", b"0"))
    trailers = [b"X-End: 1", b"Content-Length: 5", b"no colon", b"X" * 100, b"Transfer-Encoding: chunked"]
    while choose.badly(0.05):
        pieces.append(choose.choice(trailers) + b"\r\n")
    pieces.append(choose.choice(BAD_ENDS if choose.badly(0.05) else [b"\r\n"]))
    return b"".join(pieces)


def chunk(choose, piece, size=None):
    pattern = choose.choice(CHUNK_SIZES) if choose.badly(0.03) else b"%x"
    end = choose.choice(BAD_ENDS) if choose.badly(0.01) else b"\r\n"
    if size is None:
        end_of_data = choose.choice(BAD_ENDS) if choose.badly(0.01) else b"\r\n"
    else:
        end_of_data = b""
    return filled(pattern, len(piece)) + end + piece + end_of_data


# ---- Websockets -----------------------------------------------------------------------------------------------------


def handshake(choose):
    """A request for a websocket, usually a good one."""
    headers = [
        b"Host: test", b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Key: " + base64.b64encode(b"k" * 16),
        b"Sec-WebSocket-Version: 13",
    ]
    if choose.random() < 0.4:
        headers.append(b"Sec-WebSocket-Extensions: permessage-deflate" + choose.choice(
            [b"", b"", b"; client_max_window_bits", b"; server_max_window_bits=10", b"; server_no_context_takeover", b"; bad=1", b"; x;;"]))
    others = [
        b"Sec-WebSocket-Protocol: chat", b"Sec-WebSocket-Protocol: a, chat", b"Origin: http://evil", b"Origin: http://test",
        b"Sec-WebSocket-Origin: http://evil", b"Sec-WebSocket-Extensions: x-unknown, permessage-deflate",
    ]
    if choose.random() < 0.2:
        headers.append(choose.choice(others))
    bad = [
        b"Upgrade: x", b"Connection: close", b"Sec-WebSocket-Version: 12", b"Sec-WebSocket-Version: x", b"Sec-WebSocket-Key:", None,
        b"Sec-WebSocket-Key: short", b"Content-Length: 5",
    ]
    if choose.badly(0.1):
        headers[choose.randrange(1, 5)] = choose.choice(bad)
    line = choose.choice([b"GET /socket HTTP/1.1"] * 20 + [b"POST /socket HTTP/1.1", b"GET /socket HTTP/1.0"])
    return b"\r\n".join([line, *filter(None, headers), b"", b""])


def frames(choose):
    """Some frames, as a client sends them, more or less."""
    payload = choose.choice([
        b"", b"text", b"later", b"bye", "h\u00e9llo".encode(), b"\xff\xfe", b"t" * 125, b"t" * 126, b"t" * 4096, b"t" * 4097, b"t" * 66000,
    ])
    how = choose.random()
    if how < 0.35:
        return frame(choose, 0x81, payload)
    if how < 0.45:
        return frame(choose, 0x82, payload)
    if how < 0.6:  # in fragments
        first = choose.choice([0x01, 0x02, 0x00 if choose.badly(0.3) else 0x01])
        middle = [frame(choose, choose.choice([0x00, 0x00, 0x89, 0x01 if choose.badly(0.3) else 0x00]), b"m") for _ in range(choose.randint(0, 2))]
        return frame(choose, first, payload) + b"".join(middle) + frame(choose, 0x80, payload[:5])
    if how < 0.7:
        return frame(choose, choose.choice([0x89, 0x8A, 0x09]), payload)
    if how < 0.8:
        code = struct.pack("!H", choose.choice([1000, 1001, 999, 1005, 1006, 3000, 65535, 0]))
        return frame(choose, 0x88, choose.choice([b"", b"\x03", code, code + b"reason", code + b"\xff", code + b"r" * 130]))
    if how < 0.92:
        compressor = zlib.compressobj(wbits=-15)
        squeezed = (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]
        if choose.badly(0.2):
            squeezed = mutated(choose, squeezed)
        return frame(choose, choose.choice([0xC1, 0xC2]), squeezed)
    return frame(choose, choose.randrange(256), payload[:200])


def frame(choose, first, payload):
    """One frame; now and then without a mask, or with its length written in a way that is not the shortest."""
    mask = not choose.badly(0.03)
    size = len(payload)
    form = choose.choice([7, 16, 64]) if choose.badly(0.05) else 7
    if size >= 65536 or form == 64:
        length = struct.pack("!BQ", 127 | mask << 7, size)
    elif size >= 126 or form == 16:
        length = struct.pack("!BH", 126 | mask << 7, size)
    else:
        length = bytes([size | mask << 7])
    if choose.badly(0.01):
        length = struct.pack("!BQ", 127 | mask << 7, choose.choice([1 << 63, (1 << 64) - 1, 1 << 40]))
    if not mask:
        return bytes([first]) + length + payload
    key = choose.randbytes(4)
    whole = (key * (size // 4 + 1))[:size]
    masked = (int.from_bytes(payload) ^ int.from_bytes(whole)).to_bytes(size)
    return bytes([first]) + length + key + masked
