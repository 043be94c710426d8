"""A run's tokenizer as `tokenizer.json`, with the very same ids.

Nothing in a text is special, and nothing is added to it: what stands before a
text is for whoever writes the ids. The original file lies beside.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import json
import random
from typing import Any

from etils import epath
from sentencepiece import sentencepiece_model_pb2
import tokenizers as library
from tokenizers import decoders
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers

from leviathan import errors
from leviathan.data import huggingface_json
from leviathan.data import tiktoken_file
from leviathan.data import tokenizer as tokenizer_lib

CONFIG_FILE = 'tokenizer_config.json'
_SPACE = '\u2581'  # SentencePiece writes a space so.
_BPE, _UNIGRAM = 2, 1  # SentencePiece's numbers.
# Its classes are made when it is imported, so no type checker finds them.
_ModelProto: Any = vars(sentencepiece_model_pb2)['ModelProto']
_Kind = _ModelProto.SentencePiece  # Its types of pieces.
# What no text is ever cut into, however short the sum of its scores.
_NEVER = -1e6
TEXT = (
  'The quick brown fox, 1234567 of them:\r\n\tdef f(x):\n        return x  '
  "# it's\n\n\n" + '=' * 79 + "\n I'LL we'Re they'D o'clock '\u017f haha"
  'hahaha aaaaaaaa -------  CamelCase fooBAR HTTPServer \u00c9tude na\u00efve '
  'e\u0301a\u0308 \u01c5x\u02b0 \u6f22\u5b57\u3000\u0e01\u0e33 \u0661\u0662'
  '\u0663\u0664 \U0001f600\u200d\U0001f468 ///\n//\r\n .,;\n \u00a0\u2003\x0b'
  '\x0c\x1c\x85\u2028 </s> <s> <unk> \n   '
)
_SAMPLES, _LONGEST = 200, 60  # texts of random tokens, and the tokens of one


def write(
  tokenizer: tokenizer_lib.Tokenizer, directory: epath.Path, length: int
) -> str:
  """Writes tokenizer.json, its config, and the original file.

  Args:
    tokenizer: of a run.
    directory: where to.
    length: most tokens that the model reads.

  Returns:
    The name of the token that ends a text.

  Raises:
    DataError: it cannot be written so that its ids are the same.
  """
  original = tokenizer.save(directory)
  text = _CONVERSIONS[tokenizer.kind](tokenizer, original.read_bytes())
  (directory / huggingface_json.JSON_FILE).write_text(text)
  converted = library.Tokenizer.from_str(text)
  # As the file has it: for people to read, a name may look otherwise.
  end = converted.id_to_token(tokenizer.eos_id)
  assert end is not None  # All kinds keep their special tokens.
  config = {
    'tokenizer_class': 'PreTrainedTokenizerFast',
    # A document follows one in training.
    'bos_token': end,
    'eos_token': end,
    'add_bos_token': False,
    'add_eos_token': False,
    'split_special_tokens': True,
    'clean_up_tokenization_spaces': False,
    'model_max_length': length,
    # A Llama takes no others, and generates with none besides.
    'model_input_names': ['input_ids', 'attention_mask'],
  }
  (directory / CONFIG_FILE).write_text(json.dumps(config, indent=2) + '\n')
  problem = difference(tokenizer, converted)
  if problem is not None:
    raise errors.DataError(
      f'the tokenizer of kind {tokenizer.kind!r}, sha256 '
      f'{tokenizer.sha256[:12]}, has no tokenizer.json of the same ids '
      f'({problem}); train one with `leviathan tokenizer`'
    )
  return end


def difference(
  tokenizer: tokenizer_lib.Tokenizer, converted: library.Tokenizer
) -> str | None:
  """In what two tokenizers differ, on texts that are hard; None if they do not.

  Args:
    tokenizer: ours.
    converted: of a tokenizer.json; nothing in a text is special to it from now
      on, and nothing is added.
  """
  huggingface_json.make_plain(converted)
  for text in texts(tokenizer):
    ids = list(tokenizer.encode(text))
    found = converted.encode(text, add_special_tokens=False).ids
    if found != ids:
      return f'{text[:40]!r} is {ids[:16]} and {found[:16]}'
    if converted.decode(ids) != tokenizer.decode(ids):
      return f'{ids[:16]} is not the same text'
  return None


def texts(tokenizer: tokenizer_lib.Tokenizer) -> Iterator[str]:
  """Texts that conversions were found to fail on, and random ones."""
  yield TEXT
  yield tokenizer.token_text(tokenizer.eos_id)
  for _, probe in tokenizer_lib.PROBES:
    yield probe
  rng = random.Random(0)
  for _ in range(_SAMPLES):
    count = rng.randrange(1, _LONGEST)
    ids = [rng.randrange(tokenizer.vocab_size) for _ in range(count)]
    yield tokenizer.decode(ids)


def _of_sentencepiece(tokenizer: tokenizer_lib.Tokenizer, data: bytes) -> str:
  """BPE or Unigram over whole texts, with bytes for what has no piece.

  Pieces have a space where SentencePiece writes its sign for one, so that the
  sign itself, in a text, has no piece and goes as its bytes, as ours does.
  """
  del tokenizer
  model = _ModelProto()
  model.ParseFromString(data)
  _check_sentencepiece(model)
  in_text = (_Kind.NORMAL, _Kind.USER_DEFINED)
  pieces = [
    p.piece.replace(_SPACE, ' ') if p.type in in_text else p.piece
    for p in model.pieces
  ]
  ordinary = {
    piece: p.score
    for piece, p in zip(pieces, model.pieces, strict=True)
    if p.type == _Kind.NORMAL
  }
  unknown = model.trainer_spec.unk_id
  whole = [
    piece
    for piece, p in zip(pieces, model.pieces, strict=True)
    if p.type == _Kind.USER_DEFINED
  ]
  if model.trainer_spec.model_type == _BPE:
    made = models.BPE(
      {piece: i for i, piece in enumerate(pieces)},
      _merges({piece: -score for piece, score in ordinary.items()}),
      unk_token=pieces[unknown],
      byte_fallback=True,
    )
  else:
    # User-defined symbols take part in the sum, with more than any other.
    best = max(ordinary.values())
    ordinary |= {piece: len(piece.encode()) * best - 0.1 for piece in whole}
    whole = []
    # It would take any piece of the vocabulary, controls and bytes too. What
    # has no piece costs yet more, so where a control's name is spelled in
    # characters without one it is taken all the same, which `write` will find.
    scores = [(piece, ordinary.get(piece, _NEVER)) for piece in pieces]
    made = models.Unigram(scores, unk_id=unknown, byte_fallback=True)
  converted = library.Tokenizer(made)
  steps = [decoders.ByteFallback(), decoders.Fuse()]
  if model.normalizer_spec.add_dummy_prefix:
    # Not before the sign, which is cut off first.
    first = library.Regex(rf'\A(?=[^{_SPACE}])')
    converted.normalizer = normalizers.Replace(first, ' ')
    steps.append(decoders.Strip(' ', 1, 0))
  converted.decoder = decoders.Sequence(steps)
  converted.add_tokens(
    [library.AddedToken(piece, normalized=False) for piece in whole]
  )
  converted.add_special_tokens(
    [p.piece for p in model.pieces if p.type in (_Kind.CONTROL, _Kind.UNKNOWN)]
  )
  return converted.to_str()


def _check_sentencepiece(model: Any) -> None:
  """Raises DataError for what a tokenizer.json cannot do alike."""
  spec, trainer = model.normalizer_spec, model.trainer_spec
  types = {p.type for p in model.pieces}
  defined = [p.piece for p in model.pieces if p.type == _Kind.USER_DEFINED]
  problems = {
    'normalization': spec.name != 'identity' or spec.precompiled_charsmap,
    'remove_extra_whitespaces': spec.remove_extra_whitespaces,
    'treat_whitespace_as_suffix': trainer.treat_whitespace_as_suffix,
    'no byte_fallback': not trainer.byte_fallback,
    'unused pieces': _Kind.UNUSED in types,
    'a model_type that is neither BPE nor Unigram': trainer.model_type
    not in (_BPE, _UNIGRAM),
    # A text is cut at them, and each part would be given its own space.
    'add_dummy_prefix with user-defined symbols': spec.add_dummy_prefix
    and bool(defined),
    # It looks for its sign there, and so never finds one.
    'a user-defined symbol with a plain space': any(' ' in p for p in defined),
  }
  for name, is_so in problems.items():
    if is_so:
      raise errors.DataError(
        f'the SentencePiece tokenizer has {name}, of which no tokenizer.json '
        'is made; train with one of `leviathan tokenizer`'
      )


def _of_huggingface(tokenizer: tokenizer_lib.Tokenizer, data: bytes) -> str:
  """The file itself, without what it does to texts besides."""
  del tokenizer
  parsed = json.loads(data)
  parsed |= {'truncation': None, 'padding': None, 'post_processor': None}
  if 'dropout' in parsed['model']:
    parsed['model']['dropout'] = None
  return json.dumps(parsed, ensure_ascii=False)


def _of_tiktoken(tokenizer: tokenizer_lib.Tokenizer, data: bytes) -> str:
  """Byte-level BPE within the words of the file's regular expression."""
  del data
  known = tiktoken_file.KNOWN[tokenizer.sha256]
  characters = {
    byte: c for c, byte in huggingface_json.bytes_of_characters().items()
  }
  ranks = {
    ''.join(characters[byte] for byte in piece): i
    for i in range(tokenizer.vocab_size)
    if (piece := tokenizer.token_bytes(i))
  }
  converted = library.Tokenizer(
    models.BPE(
      ranks | known.special,
      _merges(ranks),
      # A word that is a piece is it, whatever its parts are merged to.
      ignore_merges=True,
    )
  )
  words = pre_tokenizers.Split(
    library.Regex(_for_onigmo(known.pattern)), 'isolated'
  )
  converted.pre_tokenizer = pre_tokenizers.Sequence(
    [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
  )
  converted.decoder = decoders.ByteLevel()
  converted.add_special_tokens(list(known.special))
  return converted.to_str()


def _for_onigmo(pattern: str) -> str:
  """A pattern of tiktoken's, as the library's regular expressions mean it.

  There `{1,3}+` repeats, and `$` is the end of a line.
  """
  return pattern.replace('{1,3}+', '{1,3}').replace('$', r'\z')


def _merges(ranks: Mapping[str, float]) -> list[tuple[str, str]]:
  """All pairs of pieces that make a piece, in the order of its rank.

  SentencePiece and tiktoken merge by the rank of what comes out, from whatever
  two pieces.
  """
  found = []
  for piece, rank in sorted(ranks.items(), key=lambda item: item[1]):
    del rank
    for i in range(1, len(piece)):
      if piece[:i] in ranks and piece[i:] in ranks:
        found.append((piece[:i], piece[i:]))
  return found


_CONVERSIONS: dict[str, Callable[[tokenizer_lib.Tokenizer, bytes], str]] = {
  'spm': _of_sentencepiece,
  'hf': _of_huggingface,
  'tiktoken': _of_tiktoken,
}
