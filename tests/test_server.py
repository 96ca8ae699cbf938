"""The HTTP side on a real socket: page, static files, headers, hosts, origins, prefixes, frames and uploads."""

from __future__ import annotations

import http.client
import io
import json
import socket as sockets
import subprocess
import sys
import zipfile
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from kvviz.errors import ConfigError
from kvviz.log.recording import Recording
from kvviz.sessions.limits import Limits
from kvviz.web.app import ServerConfig, bind, create_app, page_url
from kvviz.web.guard import CONTENT_SECURITY_POLICY
from kvviz.web.routes import api_routes
from kvviz.web.static import MEDIA_TYPES
from tests.support.fake_model import fake_load
from tests.support.running import ProxyPath, Running, running, wait_for


@pytest.fixture(scope="module")
def server():
    with running(ServerConfig(allow_hosts=("stage.lan",)), fake_load()) as server:
        with server.connect() as page:
            page.do("step", count=5)
        yield server


@pytest.fixture
def client(server: Running):
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        yield client


def raw(server: Running, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str) -> Any:
    """A request with exactly this path and these headers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest(method, path, skip_host="host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        if value:
            connection.putheader(name.replace("_", "-"), value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    response = connection.getresponse()
    response.text = response.read().decode(errors="replace")  # type: ignore[attr-defined]
    connection.close()
    return response


def test_the_page_and_its_headers(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>kvviz" in page.text
    assert client.head("/").status_code == 200
    for path in ("/", "/static/js/shell/main.js", "/api/status", "/api/nowhere", "/nowhere", "/favicon.ico"):
        headers = client.get(path).headers
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY, path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_the_page_has_only_relative_addresses(client: httpx.Client) -> None:
    text = client.get("/").text
    for mark in ('href="/', 'src="/', "http://", "https://", "//cdn", "<base"):
        assert mark not in text


def test_media_types_are_ours(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mimetypes.guess_type", lambda *args, **kwargs: ("text/plain", None))
    script = client.get("/static/js/shell/main.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert client.get("/static/css/reset.css").headers["content-type"] == "text/css; charset=utf-8"
    assert client.get("/static/icon.svg").headers["content-type"] == "image/svg+xml"
    assert MEDIA_TYPES[".mjs"] == "text/javascript"
    assert script.headers["cache-control"] == "no-cache"
    again = client.get("/static/js/shell/main.js", headers={"If-None-Match": script.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize(
    "path",
    [
        "/static/../kvviz/web/app.py",
        "/static/..%2fkvviz%2fserver.py",
        "/static/%2e%2e/%2e%2e/etc/passwd",
        "/static//etc/passwd",
        "/static/js/..%5c..%5cpyproject.toml",
        "/static/%00",
        "/static/" + "x" * 3_000,
        "/static/js",
        "/static/",
        "/static",
        "//etc/passwd",
        "/..",
        "/api/sessions/../../etc/passwd/recording",
        "/api/sessions/%2e%2e%2fpasswd/recording",
        "/docs",
        "/openapi.json",
        "/redoc",
    ],
)
def test_path_tricks_find_nothing(server: Running, path: str) -> None:
    response = raw(server, path)
    assert response.status == 404
    error = json.loads(response.text)
    assert error.keys() == {"code", "message", "details"}
    assert "root:" not in response.text


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "LOCALHOST:9",
        "localhost.",
        "[::1]:80",
        "127.3.2.1:8000",
        "stage.lan",
        "Stage.LAN:8000",
    ],
)
def test_known_hosts_are_let_in(server: Running, host: str) -> None:
    assert raw(server, "/api/status", host=host).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:8000", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("10.0.0.7", 421),
        ("0.0.0.0", 421),
        ("[::2]", 421),
        ("<script>alert(1)</script>", 400),
        ("<b>", 421),
        ("", 400),
        ("localhost:port", 400),
        ("localhost/evil", 400),
        ("user@localhost", 400),
        ("[::1", 400),
        ("localhost, evil", 400),
    ],
)
def test_other_hosts_are_refused_in_a_sentence(server: Running, host: str, status: int) -> None:
    for path in ("/", "/api/status", "/static/js/shell/main.js"):
        response = raw(server, path, host=host)
        assert response.status == status, (host, path)
        if host:
            assert response.getheader("content-type") == "text/plain; charset=utf-8"
            assert response.getheader("x-content-type-options") == "nosniff"
            assert "<" not in response.text
            assert response.text.count("\n") == 1


def test_another_host_is_refused_on_the_websocket(server: Running) -> None:
    with (
        sockets.create_connection(("127.0.0.1", server.port)) as line,
        pytest.raises(InvalidStatus) as refused,
        connect("ws://evil.example/ws", sock=line, proxy=None),
    ):
        pass
    assert refused.value.response.status_code == 421
    assert b"--allow-host evil.example" in refused.value.response.body


def test_what_changes_something_needs_the_same_origin(server: Running) -> None:
    body = make_recording(server)
    path = "/api/recordings"
    for origin in ("http://evil.example", "null", f"http://localhost:{server.port}", "https://127.0.0.1"):
        assert raw(server, path, method="POST", body=body, origin=origin).status == 403
    assert raw(server, path, method="POST", body=body, sec_fetch_site="cross-site").status == 403
    assert raw(server, path, method="POST", body=body, origin=server.url, sec_fetch_site="same-origin").status == 201
    assert raw(server, path, method="POST", body=body).status == 201
    proxied = {"host": "stage.lan", "origin": "https://stage.lan"}
    assert raw(server, path, method="POST", body=body, **proxied).status == 201
    assert raw(server, "/api/status", origin="http://evil.example").status == 200


def make_recording(server: Running) -> bytes:
    return httpx.get(f"{server.url}/api/sessions/live/recording", trust_env=False).content


@pytest.mark.parametrize("value", ["bytes=abc", "bytes=9999999999-", "bytes=0-9", "bytes=0-1,5-6", "lines=1"])
def test_a_download_leaves_no_file_behind(client: httpx.Client, server: Running, value: str) -> None:
    folder = server.sessions.library.uploads
    before = set(folder.iterdir()) if folder and folder.exists() else set()
    client.get("/api/sessions/live/recording", headers={"Range": value})
    client.head("/api/sessions/live/recording")
    wait_for(lambda: set(server.sessions.library.uploads.iterdir()) == before)


@pytest.mark.parametrize(
    ("path", "site", "destination", "status"),
    [
        ("/api/sessions/live/recording", "cross-site", "image", 403),
        ("/api/sessions/live/recording", "cross-site", "document", 403),
        ("/api/status", "same-site", "empty", 403),
        ("/api/status", "same-origin", "empty", 200),
        ("/api/status", "none", "document", 200),
        ("/", "cross-site", "document", 200),
        ("/", "cross-site", "script", 403),
    ],
)
def test_another_site_may_only_open_pages(
    client: httpx.Client, path: str, site: str, destination: str, status: int
) -> None:
    answer = client.get(path, headers={"Sec-Fetch-Site": site, "Sec-Fetch-Dest": destination})
    assert answer.status_code == status
    if status == 403:
        assert answer.text == "Other sites can only open kvviz's pages; open kvviz under its own address.\n"


def test_download_upload_and_watch(client: httpx.Client, server: Running) -> None:
    download = client.get("/api/sessions/live/recording")
    assert download.headers["content-disposition"] == 'attachment; filename="A-fake.kvviz"'
    assert Recording.open(download.content).num_steps == 5
    uploaded = client.post("/api/recordings", content=download.content)
    assert uploaded.status_code == 201
    entry = uploaded.json()
    assert entry == {**entry, "title": "A fake", "num_steps": 5, "bytes": len(download.content)}
    assert entry in client.get("/api/recordings").json()
    assert client.get(f"/api/sessions/{entry['id']}/recording").content == download.content
    log = server.source.run.log
    with server.connect(f"?session={entry['session_id']}") as page:
        hello = page.until_type("hello")
        assert (hello["kind"], hello["head_seq"]) == ("recording", log.head_seq)
        page.until_seq(log.head_seq)
        assert page.records == log.records()
        refused = page.ask("step")
        assert (refused["code"], refused["type"]) == ("recording", "error")
        assert "doesn't support 'step'" in refused["message"]
        page.do("subscribe", layer=1)
    with server.connect(f"?session={entry['session_id']}&after=7&log={hello['log_id']}") as page:
        page.until_type("records")
        assert page.records[0][0] == 8


def hostile_files() -> dict[str, bytes]:
    def archive(**members: bytes) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            for name, data in members.items():
                file.writestr(name.replace("__", "."), data)
        return buffer.getvalue()

    return {
        "empty": b"",
        "text": b"hello",
        "form": b'--x\r\nContent-Disposition: form-data; name="f"\r\n\r\nPK\r\n--x--',
        "zip of nothing": archive(),
        "no events": archive(header__json=b"{}"),
        "list for a header": archive(header__json=b"[]", events__ndjson=b""),
        "newer": archive(header__json=b'{"format": 99}', events__ndjson=b""),
        "deep": archive(header__json=b"[" * 100_000, events__ndjson=b""),
        "path": archive(**{"../../etc/cron": b"x"}),
        "bomb": archive(header__json=b" " * 5_000_000, events__ndjson=b""),
    }


@pytest.mark.parametrize("name", list(hostile_files()))
def test_hostile_uploads_are_refused_and_leave_nothing(client: httpx.Client, server: Running, name: str) -> None:
    before = client.get("/api/recordings").json()
    response = client.post("/api/recordings", content=hostile_files()[name])
    assert response.status_code in (400, 413)
    assert response.json().keys() == {"code", "message", "details"}
    assert 20 < len(response.json()["message"]) < 300
    assert client.get("/api/recordings").json() == before
    uploads = server.sessions.library.uploads
    assert len(list(uploads.iterdir())) == sum(entry["id"].startswith("upload-") for entry in before)


def test_a_truncated_recording_is_refused(client: httpx.Client, server: Running) -> None:
    data = make_recording(server)
    for length in range(0, len(data), max(1, len(data) // 20)):
        assert client.post("/api/recordings", content=data[:length]).status_code == 400


def test_uploads_are_bounded() -> None:
    limits = Limits(max_upload_bytes=1_000)
    with (
        running(ServerConfig(limits=limits), fake_load()) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        too_large = client.post("/api/recordings", content=b"x" * 1_001)
        assert (too_large.status_code, too_large.json()["code"]) == (413, "too_large")
        chunks = client.post("/api/recordings", content=(b"x" * 100 for _ in range(20)))
        assert (chunks.status_code, chunks.json()["code"]) == (413, "too_large")


def test_old_uploads_make_room(server: Running) -> None:
    body = make_recording(server)
    with (
        running(ServerConfig(limits=Limits(max_recordings=3)), fake_load()) as other,
        httpx.Client(base_url=other.url, trust_env=False) as client,
    ):
        ids = [client.post("/api/recordings", content=body).json()["id"] for _ in range(5)]
        offered = [entry["id"] for entry in client.get("/api/recordings").json()]
        assert [entry for entry in offered if entry.startswith("upload-")] == ids[2:]
    limits = Limits(max_uploads_bytes=2 * len(body) + 10)
    with (
        running(ServerConfig(limits=limits), fake_load()) as other,
        httpx.Client(base_url=other.url, trust_env=False) as client,
    ):
        ids = [client.post("/api/recordings", content=body).json()["id"] for _ in range(2)]
        with other.connect(f"?session={ids[0]}") as first, other.connect(f"?session={ids[1]}") as second:
            first.until_type("hello")
            second.until_type("hello")
            refused = client.post("/api/recordings", content=body)
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_sessions")


def test_methods_and_parameters(client: httpx.Client) -> None:
    assert client.post("/").status_code == 405
    assert client.delete("/api/recordings").status_code == 405
    assert client.put("/static/js/shell/main.js").status_code == 405
    for path in (
        "frames/x",
        "frames/-1",
        "frames/1?columns=0",
        "frames/1?columns=513",
        "frames/1?layer=-1",
        "frames/99999999999999999999",
        "frames/1?request=-1",
        "heads/1?request=x",
        "triangle/1?layer=1&head=1&request=1.5",
        "scores/1?layer=1&position=1&request=99999999999999999999",
        "norms/x",
        "entry",
        "entry?request=0&position=1&layer=x&write_seq=1",
        "triangle/1?layer=1",
        "scores/1?layer=1&position=1.5",
    ):
        response = client.get(f"/api/sessions/live/{path}")
        assert response.status_code == 400, path
        assert response.json()["code"] == "bad_parameter"


def test_frames_by_range(client: httpx.Client) -> None:
    questions = {
        "frames/3?layer=2&columns=100": {"kind": "step", "step": 3, "layer": 2, "columns": 100},
        "frames/1": {"kind": "step", "step": 1, "layer": 0, "columns": 512},
        "norms/0": {"kind": "norms", "request_id": 0},
        "heads/2?layer=1": {"kind": "heads", "step": 2, "layer": 1},
        "entry?request=0&position=3&layer=1&write_seq=9": {"kind": "entry", "position": 3, "write_seq": 9},
        "triangle/1?layer=1&head=2": {"kind": "triangle", "head": 2},
        "scores/4?layer=1&position=2": {"kind": "scores", "position": 2},
        "frames/2?layer=1&request=0": {"kind": "step", "step": 2, "request_id": 0},
        "heads/2?layer=1&request=0": {"kind": "heads", "request_id": 0},
        "triangle/1?layer=1&head=2&request=4": {"kind": "triangle", "head": 2, "request_id": 4},
        "scores/4?layer=1&position=2&request=4": {"kind": "scores", "position": 2, "request_id": 4},
    }
    for path, expected in questions.items():
        response = client.get(f"/api/sessions/live/{path}")
        assert response.status_code == 200, path
        assert response.headers["content-type"] == "application/octet-stream"
        assert response.headers["cache-control"] == "no-store"
        data = response.content
        head = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
        assert head.items() >= expected.items()
    missing = client.get("/api/sessions/live/frames/900")
    assert (missing.status_code, missing.json()["code"]) == (404, "no_such_step")
    for kind in ("frames", "heads"):
        other = client.get(f"/api/sessions/live/{kind}/1?request=9")
        assert (other.status_code, other.json()["code"]) == (404, "not_in_step")
        assert other.json()["message"] == "Request 9 computed nothing in step 1; choose one that did: 0."
    gone = client.get("/api/sessions/live/entry?request=0&position=3&layer=1&write_seq=0")
    assert (gone.status_code, gone.json()["code"], gone.json()["details"]) == (410, "gone", {"since_step": 3})
    assert client.get("/api/sessions/new/frames/1").status_code == 404
    assert client.get("/api/sessions/nobody/norms/0").json()["code"] == "no_such_session"


@pytest.mark.parametrize("strips", [True, False])
@pytest.mark.parametrize("root_path", ["/proxy/8000", "/proxy/8000/"])
def test_under_a_prefix(strips: bool, root_path: str) -> None:
    config = ServerConfig(root_path=root_path)
    with running(config, fake_load(), lambda app: ProxyPath(app, "/proxy/8000", strips=strips)) as server:
        with httpx.Client(base_url=f"{server.url}/proxy/8000/", trust_env=False) as client:
            assert "<title>kvviz" in client.get("").text
            assert client.get("static/js/shell/main.js").headers["content-type"] == "text/javascript; charset=utf-8"
            assert client.get("api/status").json()["model"]["state"] == "ready"
            assert client.get("static/../static/js/shell/main.js").status_code == 200
            bare = httpx.get(f"{server.url}/proxy/8000?step=3", trust_env=False)
            if strips:
                assert bare.status_code == 200
            else:
                assert (bare.status_code, bare.headers["location"]) == (308, "/proxy/8000/?step=3")
        with server.connect(path="/proxy/8000/ws") as page:
            assert page.do("step") == {"num_steps": 1}
        with pytest.raises(InvalidStatus):
            server.connect(path="/ws")


def test_a_prefix_does_not_match_half_a_name() -> None:
    with running(ServerConfig(root_path="/kv"), fake_load()) as server:
        assert raw(server, "/kv/api/status").status == 200
        assert raw(server, "/kvviz/api/status").status == 404
        assert raw(server, "/api/status").status == 200


@pytest.mark.parametrize(
    "root_path",
    [
        "http://x",
        "https://stage.lan/kvviz",
        "//stage.lan/kvviz",
        "kvviz",
        "kvviz/",
        "/kvviz?theme=light",
        "/kvviz#top",
        "/kv viz",
        "/kvviz\n",
        "C:\\kvviz",
        "/kvviz//",
    ],
)
def test_a_root_path_that_is_no_path_is_refused_in_one_sentence(root_path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig(root_path=root_path)
    assert caught.value.message == (
        f"A root path must start with / and have no scheme, host or query, such as /kvviz (got {root_path!r})."
    )
    assert caught.value.details == {"setting": "root_path"}


@pytest.mark.parametrize("root_path", ["", "/", "/k", "/k/", "/user/ann@stage/proxy/8000", "/größe~1.2/"])
def test_a_root_path_that_is_one_is_taken(root_path: str) -> None:
    assert ServerConfig(root_path=root_path).root_path == root_path


HEADLESS = (
    "/api/status",
    "/api/recordings",
    "/api/sessions/live/recording",
    "/api/sessions/live/records?log=LOG",
    "/api/sessions/live/records?log=other",
    "/api/sessions/live/frames/3?layer=2&columns=100",
    "/api/sessions/live/frames/900",
    "/api/sessions/live/frames/x",
    "/api/sessions/live/norms/0",
    "/api/sessions/live/heads/2?layer=1",
    "/api/sessions/live/entry?request=0&position=3&layer=1&write_seq=9",
    "/api/sessions/live/entry?request=0&position=3&layer=1&write_seq=0",
    "/api/sessions/live/triangle/1?layer=1&head=2",
    "/api/sessions/live/scores/4?layer=1&position=2",
    "/api/sessions/nobody/norms/0",
    "/favicon.ico",
)


@pytest.mark.parametrize("path", HEADLESS)
def test_head_is_answered_like_get_without_the_body(server: Running, path: str) -> None:
    path = path.replace("LOG", server.source.run.log.log_id)
    full, bare = raw(server, path), raw(server, path, method="HEAD")
    assert bare.status == full.status
    assert bare.text == ""
    ignored = {"date", "etag", "last-modified"}  # the recording is written anew for each
    headers = [
        {name.lower(): value for name, value in answer.getheaders() if name.lower() not in ignored}
        for answer in (full, bare)
    ]
    assert headers[0] == headers[1]
    if full.status != 204:
        assert int(headers[1]["content-length"]) > 10


def test_every_route_that_reads_answers_head(server: Running) -> None:
    routes = [route for route in api_routes(server.app.state.sessions).routes if "GET" in route.methods]
    assert {"/api/recordings", "/api/calculator", "/api/bandwidth"} <= {route.path for route in routes}
    assert all("HEAD" in route.methods for route in routes)


def test_head_has_no_body_on_the_wire_and_keeps_the_connection(server: Running) -> None:
    """A body after the headers would be taken for the next answer."""
    with sockets.create_connection(("127.0.0.1", server.port), 10) as connection:
        ask = b"%s /api/status HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
        connection.sendall(ask % (b"HEAD", b"") + ask % (b"GET", b"Connection: close\r\n"))
        came = b""
        while part := connection.recv(65_536):
            came += part
    first, second, body = came.split(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200 OK")
    assert second.startswith(b"HTTP/1.1 200 OK")
    assert json.loads(body)["type"] == "status"


def test_the_address_of_the_connection_is_a_known_host() -> None:
    address = lan_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    with running(ServerConfig(host="0.0.0.0"), fake_load()) as server:
        response = httpx.get(f"http://{address}:{server.port}/api/status", trust_env=False)
        assert response.status_code == 200
        assert raw(server, "/api/status", host=address).status == 421


def lan_address() -> str | None:
    with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") or address == "0.0.0.0" else address


def test_an_unexpected_error_is_told_without_its_inside() -> None:
    app = create_app(ServerConfig(), fake_load())

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("a secret")

    from starlette.testclient import TestClient

    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        response = client.get("/broken")
        assert (response.status_code, response.json()["code"]) == (500, "internal")
        assert "secret" not in response.text
        assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY


def test_bind() -> None:
    with bind("127.0.0.1", None) as first, bind("127.0.0.1", None) as second:
        ports = [listener.getsockname()[1] for listener in (first, second)]
        assert ports[0] != ports[1]
        with pytest.raises(ConfigError, match="choose another --port"):
            bind("127.0.0.1", ports[0])
        assert page_url(ServerConfig(), first) == f"http://127.0.0.1:{ports[0]}/"
        assert page_url(ServerConfig(host="0.0.0.0"), first) == f"http://127.0.0.1:{ports[0]}/"
    with pytest.raises(ConfigError, match="not known"):
        bind("no such host", None)


def test_the_server_imports_no_torch() -> None:
    code = "import sys, kvviz.web.app; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
