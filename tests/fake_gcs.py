"""A small Google Cloud Storage in memory, for gcsfs and tensorstore alike.

It speaks the part of the JSON API that they use, over HTTP, so that several
processes share it: list, read, upload, copy, move, delete, and conditions on an
object's generation. As in the real one, an object appears whole or not at all,
there are no directories, and a listing has pages.
"""

from collections.abc import Mapping
import dataclasses
import email.parser
import http.server
import itertools
import json
import re
import socketserver
import sys
import threading
import urllib.parse

PAGE = 7  # Objects of a listing; small, so that there are several.


@dataclasses.dataclass(frozen=True)
class Object:
  """What lies under a name."""

  data: bytes
  generation: int


class _RefusedError(Exception):
  """An answer that is not 200."""

  def __init__(self, status: int, message: str = ''):
    super().__init__(message)
    self.status = status


class FakeGCS:
  """The server, and what it holds.

  Attributes:
    objects: {bucket: {name: Object}}; tests may look and change.
    forbidden: buckets that refuse to be read and written.
    read_only: buckets that refuse to be written.
    requests: 'POST bucket/name' of all that was written, in order.
    refused: a pattern of 'GET bucket/name' and the like that get no access.
    lost: a pattern of such requests; one is done, and its answer is lost.
    held: a pattern of requests that write, which are never answered until it
      changes, and then refused.
  """

  def __init__(self, *buckets: str):
    """Serves some empty buckets until `close`."""
    self.objects: dict[str, dict[str, Object]] = {b: {} for b in buckets}
    self.forbidden: set[str] = set()
    self.read_only: set[str] = set()
    self.requests: list[str] = []
    self.refused: str | None = None
    self.lost: str | None = None
    self.held: str | None = None
    self.lock = threading.Condition()
    self._generations = itertools.count(1)
    self._uploads: dict[str, tuple[str, str, dict[str, str], bytes]] = {}
    self._server = _Server(('127.0.0.1', 0), _handler(self))
    self._thread = threading.Thread(target=self._server.serve_forever)
    self._thread.start()

  @property
  def url(self) -> str:
    """Where it listens."""
    return f'http://127.0.0.1:{self._server.server_address[1]}'

  def environment(self) -> dict[str, str]:
    """What points gcsfs and tensorstore here, without an account."""
    return {
      'STORAGE_EMULATOR_HOST': self.url,
      'TENSORSTORE_GCS_HTTP_URL': self.url,
      'GOOGLE_AUTH_TOKEN_FOR_TESTING': 'none',
      'NO_GCE_CHECK': 'true',
      # It asks for the kind of bucket by gRPC.
      'GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT': 'false',
    }

  def close(self) -> None:
    """Stops listening."""
    self.hold(None)
    self._server.shutdown()
    self._server.server_close()
    self._thread.join()

  def hold(self, pattern: str | None) -> None:
    """Changes what is held."""
    with self.lock:
      self.held = pattern
      self.lock.notify_all()

  def names(self, bucket: str, prefix: str = '') -> list[str]:
    """The objects that begin so."""
    return sorted(n for n in self.objects[bucket] if n.startswith(prefix))

  def answer(
    self,
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
  ) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of a request."""
    upload = path.startswith('/upload/')
    match = re.fullmatch(
      r'(?:/upload|/download)?/storage/v1/b/([^/]+)(?:/o(?:/([^/]+)(/.*)?)?)?',
      path,
    )
    if not match:
      raise _RefusedError(501, f'{method} {path}')
    bucket, name, rest = (urllib.parse.unquote(x or '') for x in match.groups())
    if bucket in self.forbidden or (
      bucket in self.read_only and method != 'GET'
    ):
      raise _RefusedError(403, f'no access to {bucket}')
    if bucket not in self.objects:
      raise _RefusedError(404, 'The specified bucket does not exist.')
    objects = self.objects[bucket]
    if self.refused and re.search(self.refused, f'{method} {bucket}/{name}'):
      raise _RefusedError(403, f'no access to {name}')
    if method == 'GET' and not name:
      if not path.endswith('/o'):
        return _json({'kind': 'storage#bucket', 'name': bucket})
      return _json(_listing(bucket, objects, query))
    if method == 'GET':
      return _read(bucket, name, self._get(bucket, name, query), query, headers)
    if upload and not name:
      name = _upload_name(query, headers, body)
    request = f'{method} {bucket}/{name}'
    self.requests.append(request)
    if (pattern := self.held) and re.search(pattern, request):
      self.lock.wait_for(lambda: self.held != pattern)
      raise _RefusedError(503, 'held')
    if upload:
      return self._upload(bucket, query, headers, body)
    if method == 'DELETE':
      self._get(bucket, name, query)
      del objects[name]
      if self.lost and re.search(self.lost, request):
        self.lost = None
        raise _RefusedError(503, 'lost')
      return 204, {}, b''
    found = self._get(bucket, name, {})
    if to := re.fullmatch(r'/(?:rewrite|copy)To/b/([^/]+)/o/(.+)', rest):
      meta = self._put(*to.groups(), found.data, {})
      return _json({'done': True, 'resource': meta})
    if to := re.fullmatch(r'/moveTo/o/(.+)', rest):
      meta = self._put(bucket, to.group(1), found.data, {})
      del objects[name]
      return _json(meta)
    raise _RefusedError(501, f'{method} {path}')

  def _get(self, bucket: str, name: str, query: Mapping[str, str]) -> Object:
    found = self.objects[bucket].get(name)
    self._check(found, query)
    if found is None:
      raise _RefusedError(404, f'No such object: {bucket}/{name}')
    return found

  def _check(self, found: Object | None, query: Mapping[str, str]) -> None:
    """What a request supposes of the object."""
    generation = found.generation if found else 0
    wanted = query.get('ifGenerationMatch')
    if wanted is not None and int(wanted) != generation:
      raise _RefusedError(412, 'conditionNotMet')
    if query.get('ifGenerationNotMatch') == str(generation):
      raise _RefusedError(304)

  def _put(
    self, bucket: str, name: str, data: bytes, query: Mapping[str, str]
  ) -> dict[str, str]:
    self._check(self.objects[bucket].get(name), query)
    found = Object(data, next(self._generations))
    self.objects[bucket][name] = found
    return _resource(bucket, name, found)

  def _upload(self, bucket, query, headers, body):
    """Of the three kinds: whole, with metadata before it, or in pieces."""
    kind = query['uploadType']
    if kind == 'media':
      return _json(self._put(bucket, query['name'], body, query))
    if kind == 'multipart':
      head, data = _parts(headers['Content-Type'], body)
      return _json(self._put(bucket, json.loads(head)['name'], data, query))
    if 'upload_id' not in query:
      key = str(next(self._generations))
      name = query.get('name') or json.loads(body)['name']
      self._uploads[key] = bucket, name, dict(query), b''
      address = f'/upload/storage/v1/b/{bucket}/o?uploadType=resumable'
      return 200, {'Location': f'{self.url}{address}&upload_id={key}'}, b''
    key = query['upload_id']
    bucket, name, first, data = self._uploads[key]
    data += body
    self._uploads[key] = bucket, name, first, data
    if headers['Content-Range'].endswith('/*'):
      return 308, {'Range': f'bytes=0-{len(data) - 1}'}, b''
    return _json(self._put(bucket, name, data, first))


def _upload_name(query, headers, body) -> str:
  """What an upload is for; the later pieces of one do not say it."""
  if query['uploadType'] == 'multipart':
    return json.loads(_parts(headers['Content-Type'], body)[0])['name']
  return query.get('name', '')


def _parts(content_type: str, body: bytes) -> tuple[bytes, bytes]:
  """The metadata and the data of an upload in two parts."""
  parsed = email.parser.HeaderParser().parsestr(f'Content-Type: {content_type}')
  mark = b'--' + parsed.get_param('boundary').encode()
  _, head, data, _ = re.split(rb'(?:\A|\r?\n)' + re.escape(mark), body)
  head, data = (
    re.split(rb'\r?\n\r?\n', p, maxsplit=1)[1] for p in (head, data)
  )
  return head, data


def _resource(bucket: str, name: str, found: Object) -> dict[str, str]:
  return {
    'kind': 'storage#object',
    'name': name,
    'bucket': bucket,
    'generation': str(found.generation),
    'metageneration': '1',
    'size': str(len(found.data)),
    'contentType': 'application/octet-stream',
    'timeCreated': '2026-01-01T00:00:00.000000Z',
    'updated': '2026-01-01T00:00:00.000000Z',
  }


def _listing(bucket, objects, query):
  prefix, delimiter = query.get('prefix', ''), query.get('delimiter')
  first, end = query.get('startOffset', ''), query.get('endOffset')
  entries = {}  # In order; None stands for all that a folder holds.
  for name in sorted(objects):
    if name.startswith(prefix) and first <= name and not (end and name >= end):
      inside, mark, _ = name[len(prefix) :].partition(delimiter or '\0')
      entries[prefix + inside + mark] = None if mark else objects[name]
  token = query.get('pageToken', '')
  left = [name for name in entries if name > token]
  size = min(PAGE, int(query.get('maxResults', PAGE)))
  page = {name: entries[name] for name in left[:size]}
  found = {
    'kind': 'storage#objects',
    'items': [_resource(bucket, n, o) for n, o in page.items() if o],
    'prefixes': [n for n, o in page.items() if not o],
  }
  return found | ({'nextPageToken': left[size - 1]} if left[size:] else {})


def _read(bucket, name, found, query, headers):
  """The data of an object, or what is known of it."""
  if query.get('alt') != 'media':
    return _json(_resource(bucket, name, found))
  about = {'x-goog-generation': str(found.generation)}
  wanted = re.fullmatch(r'bytes=(\d*)-(\d*)', headers.get('Range', ''))
  if not wanted:
    return 200, about, found.data
  size = len(found.data)
  first, last = wanted.groups()
  start = int(first) if first else max(0, size - int(last))
  stop = min(size, int(last) + 1) if first and last else size
  if start >= size:
    raise _RefusedError(416, 'not satisfiable')
  about['Content-Range'] = f'bytes {start}-{stop - 1}/{size}'
  return 206, about, found.data[start:stop]


def _json(value) -> tuple[int, dict[str, str], bytes]:
  data = json.dumps(value).encode()
  return 200, {'Content-Type': 'application/json'}, data


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
  daemon_threads = True

  def handle_error(self, request, client_address):
    if not isinstance(sys.exception(), ConnectionError):  # It was killed.
      super().handle_error(request, client_address)


def _handler(store: FakeGCS) -> type[http.server.BaseHTTPRequestHandler]:
  """What answers requests to a store."""

  class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    # Small answers must not wait for one another.
    disable_nagle_algorithm = True

    def _body(self) -> bytes:
      if self.headers.get('Transfer-Encoding') != 'chunked':
        return self.rfile.read(int(self.headers.get('Content-Length', 0)))
      body = b''
      while size := int(self.rfile.readline(), 16):
        body += self.rfile.read(size)
        self.rfile.readline()
      self.rfile.readline()
      return body

    def _serve(self):
      url = urllib.parse.urlsplit(self.path)
      query = dict(urllib.parse.parse_qsl(url.query))
      body = self._body()
      try:
        with store.lock:
          status, headers, data = store.answer(
            self.command, url.path, query, self.headers, body
          )
      except _RefusedError as e:
        error = {'error': {'code': e.status, 'message': str(e)}}
        status, headers, data = e.status, {}, json.dumps(error).encode()
        if status == 304:
          data = b''
      self.send_response(status)
      for name, value in headers.items():
        self.send_header(name, value)
      if status not in (204, 304):
        self.send_header('Content-Length', str(len(data)))
      self.end_headers()
      if status not in (204, 304):
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def log_message(self, format, *args):
      del format, args

  return Handler
