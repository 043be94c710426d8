"""Small programs by hand, and one of which the answer is known."""

import jax
import jax.numpy as jnp
import pytest

from leviathan import hlo
from leviathan import sharding

MESH = {'data': 2, 'fsdp': 2, 'tensor': 2}


@pytest.mark.parametrize(
  'shape, plain, padded',
  [
    ('f32[3,5]', 60, 60),
    ('(bf16[4], pred[3], u32[])', 8 + 3 + 4, 8 + 3 + 4),
    ('f8e4m3fn[10]{0}', 10, 10),
    ('f32[3,5]{1,0:T(8,128)}', 60, 4 * 8 * 128),
    # The first dimension lies closest.
    ('f32[130,9]{0,1:T(8,128)}', 4680, 4 * 256 * 16),
    ('bf16[2,3,5]{2,1,0:T(8,128)(2,1)}', 60, 2 * 2 * 8 * 128),
    # On the chip itself.
    ('f32[3,5]{1,0:T(8,128)S(1)}', 60, 0),
    ('token[]', 0, 0),
  ],
)
def test_bytes_of_arrays(shape, plain, padded):
  assert hlo.bytes_of(shape) == plain
  assert hlo.bytes_of(shape, memory=True) == padded


LOOP = """HloModule jit_step

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%condition (p: (f32[8], u32[])) -> pred[] {
  %p = (f32[8], u32[]) parameter(0)
  %limit = u32[] constant(8)
  %i = u32[] get-tuple-element(%p), index=1
  ROOT %less = pred[] compare(%i, %limit), direction=LT
}

%body (q: (f32[8], u32[])) -> (f32[8], u32[]) {
  %q = (f32[8], u32[]) parameter(0)
  %x = f32[8]{0} get-tuple-element(%q), index=0
  %j = u32[] get-tuple-element(%q), index=1
  %two = u32[] constant(2)
  %next = u32[] add(%j, %two)
  %kernel = f32[8]{0} custom-call(%x), frontend_attributes={metadata={
"words":"{\\"a\\": 1}"
}}, metadata={op_name="kernel"}
  %sent = f32[8]{0} all-reduce(%kernel), channel_id=1, replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%add
  ROOT %both = (f32[8], u32[]) tuple(%sent, %next)
}

ENTRY %main (x: f32[8]) -> f32[16] {
  %x = f32[8]{0} parameter(0)
  %zero = u32[] constant(0)
  %first = (f32[8], u32[]) tuple(%x, %zero)
  %while = (f32[8], u32[]) while(%first), condition=%condition, body=%body KNOWN
  %y = f32[8]{0} get-tuple-element(%while), index=0
  %start = (f32[8]{0}, f32[16]{0}) all-gather-start(%y), channel_id=2, replica_groups=[4,2]<=[2,2,2]T(0,2,1), dimensions={0}
  ROOT %done = f32[16]{0} all-gather-done(%start)
}
"""  # noqa: E501


@pytest.mark.parametrize(
  'known, trips',
  [
    ('', 4),  # From 0 by 2 while below 8.
    (', backend_config={"known_trip_count":{"n":"3"}}', 3),
  ],
)
def test_what_a_loop_sends_counts_as_often_as_it_is_gone_through(known, trips):
  program = hlo.parse(LOOP.replace(' KNOWN', known))
  assert program.entry == 'main'
  assert hlo.executions(program)['body'] == trips
  assert hlo.collectives(program, MESH) == [
    # Both ways over two devices: each passes on all of it.
    hlo.Collective('all-reduce', 'tensor', trips, trips * 32, trips * 32),
    # Start and end are one; half of what is gathered is there.
    hlo.Collective('all-gather', 'fsdp', 1, 64, 32),
  ]


# As libtpu 0.0.42 writes what two slices tell each other.
ACROSS = """HloModule jit_step

ENTRY %main (x: f32[8,4]) -> f32[8,4] {
  %x = f32[8,4]{1,0} parameter(0)
  %t = token[] after-all()
  %send = (f32[8,4]{1,0:T(8,128)}, u32[], token[]) send(%x, %t), channel_id=2, is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",_xla_megascale_reduce_operation="SUM",_xla_megascale_target="{1,2}x{0:3}",_xla_megascale_transfer_type="ALL_REDUCE"}
  %recv = (f32[8,4]{1,0:T(8,128)}, u32[], token[]) recv(%t), channel_id=1, is_host_transfer=true, frontend_attributes={_xla_megascale_target="{1,2}x{0:3}",_xla_megascale_transfer_type="ALL_REDUCE"}
  %sent = token[] send-done(%send), channel_id=2, is_host_transfer=true
  %got = (f32[8,4]{1,0}, token[]) recv-done(%recv), channel_id=1, is_host_transfer=true
  ROOT %y = f32[8,4]{1,0} get-tuple-element(%got), index=0
}
"""  # noqa: E501


def test_what_hosts_send_between_slices_counts():
  assert hlo.collectives(hlo.parse(ACROSS), MESH) == [
    hlo.Collective('all-reduce', 'data', 1, 128, 128)
  ]


def test_what_is_spread_over_fusions_is_one():
  text = """
%part.1 (a: f32[2]) -> f32[8] {
  %a = f32[2]{0} parameter(0)
  ROOT %g.1 = f32[8]{0} all-gather(%a), channel_id=7, replica_groups={{0,1,2,3}}
}

%part.2 (b: f32[2]) -> f32[8] {
  %b = f32[2]{0} parameter(0)
  ROOT %g.2 = f32[8]{0:S(1)} all-gather(%b), channel_id=7, replica_groups={{0,1,2,3}}
}

ENTRY %main (x: f32[2]) -> f32[8] {
  %x = f32[2]{0} parameter(0)
  %one = f32[8]{0} fusion(%x), kind=kCustom, calls=%part.1
  ROOT %two = f32[8]{0} fusion(%x), kind=kCustom, calls=%part.2
}
"""  # noqa: E501
  found = hlo.collectives(hlo.parse(text), {'data': 4})
  assert found == [hlo.Collective('all-gather', 'data', 1, 32, 24)]


def test_the_largest_arrays_are_those_that_operations_make():
  text = """
%write (a: f32[100], b: f32[1]) -> f32[100] {
  %a = f32[100]{0} parameter(0)
  %b = f32[1]{0} parameter(1)
  %at = s32[] constant(0)
  %inner = f32[5000]{0} broadcast(%b), dimensions={0}
  ROOT %in = f32[100]{0} dynamic-update-slice(%a, %b, %at)
}

ENTRY %main (x: f32[1000]) -> f32[100] {
  %x = f32[1000]{0} parameter(0)
  %room = f32[100]{0} broadcast(%x), metadata={op_name="step/room"}
  %small = f32[10]{0} negate(%x), metadata={op_name="step/small"}
  %view = f32[10,10]{1,0} bitcast(%room)
  ROOT %in.1 = f32[100]{0} fusion(%room, %small), kind=kLoop, calls=%write
}
"""
  assert hlo.largest(hlo.parse(text), 5) == [
    hlo.Buffer('step/room', 400, 'f32[100]'),
    hlo.Buffer('step/small', 40, 'f32[10]'),
  ]


@pytest.mark.parametrize(
  'message, expected',
  [
    (
      'Ran out of memory on HBM, the total memory required for HLO '
      'temporaries (52.07G) exceeds available HBM (15.75G).',
      int(52.07 * 2**30),
    ),
    ('Ran out of memory in memory space hbm. Used 2.5M of 1M hbm.', 2621440),
    ('Ran out of memory in memory space hbm.', None),
  ],
)
def test_what_a_refused_program_would_need(message, expected):
  assert hlo.is_of_hbm(message)
  assert hlo.exhausted(message) == expected


@pytest.mark.parametrize(
  'message',
  [
    'Ran out of memory in memory space vmem. Used 17.50M of 16.00M vmem.',
    'Scoped allocation with size 17.50M and limit 16.00M exceeded scoped vmem '
    'limit by 1.50M.',
  ],
)
def test_a_refusal_of_the_chip_s_own_memory_is_another(message):
  assert not hlo.is_of_hbm(message)
  assert hlo.exhausted(message) is None


@pytest.mark.parametrize(
  'destination, source, expected',
  [
    ('f32[8,128]{1,0:T(8,128)}', 'f32[8,128]{1,0:T(8,128)S(1)}', [4096]),
    ('f32[8,128]{1,0:T(8,128)S(1)}', 'f32[8,128]{1,0:T(8,128)}', []),
  ],
)
def test_a_copy_makes_its_destination(destination, source, expected):
  text = f"""
ENTRY %main (x: f32[8,128]) -> f32[8,128] {{
  %x = {source} parameter(0)
  %start = ({destination}, {source}, u32[]{{:S(2)}}) copy-start(%x)
  ROOT %done = {destination} copy-done(%start)
}}
"""
  found = hlo.largest(hlo.parse(text), 5)
  assert [b.bytes for b in found] == expected


def test_groups_that_cannot_be_read_count_and_are_not_multiplied():
  text = """
ENTRY %main (x: f32[8]) -> f32[2] {
  %x = f32[8]{0} parameter(0)
  ROOT %r = f32[2]{0} reduce-scatter(%x), replica_groups=~4, dimensions={0}
}
"""
  found = hlo.collectives(hlo.parse(text), {'data': 4})
  assert found == [hlo.Collective('reduce-scatter', '?', 1, 8, 4)]


def test_what_the_compiler_has_made_is_named_by_what_it_goes_into():
  text = """
ENTRY %main (x: f32[1000]) -> f32[100] {
  %x = f32[1000]{0} parameter(0)
  %room = f32[100]{0} custom-call(), metadata={op_name="broadcast.1"}
  %padded = f32[1,64]{1,0:T(8,128)} copy(%x), metadata={op_name="step/copy"}
  %turned = f32[1,64]{0,1:T(8,128)} copy(%x), metadata={op_name="step/copy"}
  %both = (f32[100]{0}, f32[1000]{0}) tuple(%room, %x)
  %loop = (f32[100]{0}, f32[1000]{0}) while(%both), metadata={op_name="step/while"}
  ROOT %lone = f32[100]{0} negate(%x)
}
"""  # noqa: E501
  assert hlo.largest(hlo.parse(text), 5) == [
    # Of both layouts the one that takes more: 64 x 128 and not 8 x 128.
    hlo.Buffer('step/copy', 64 * 128 * 4, 'f32[1,64]'),
    hlo.Buffer('step/while', 400, 'f32[100]'),
    hlo.Buffer('lone', 400, 'f32[100]'),
  ]


def test_a_program_of_which_all_is_known():
  """Five rounds of a sum over one axis and one over two, then a gather."""
  mesh = sharding.make_mesh(sharding.MeshConfig(**MESH))

  def rounds(x_BD):
    def one(x_BD, _):
      x_BD = jax.lax.psum(jnp.tanh(x_BD), 'tensor')
      return jax.lax.psum(jnp.sin(x_BD), ('data', 'fsdp')), None

    x_BD, _ = jax.lax.scan(one, x_BD, length=5)
    return jax.lax.all_gather(x_BD, 'fsdp', tiled=True)

  spec = jax.sharding.PartitionSpec('data')
  step = jax.shard_map(
    rounds, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
  )
  x_BD = jax.ShapeDtypeStruct((16, 32), jnp.float32)
  text = jax.jit(step).lower(x_BD).compile().as_text()
  found = {(c.kind, c.axes): c for c in hlo.collectives(hlo.parse(text), MESH)}
  size = 8 * 32 * 4  # What a device has of x_BD.
  assert found == {
    (kind, axes): hlo.Collective(kind, axes, *rest)
    for kind, axes, *rest in (
      ('all-reduce', 'tensor', 5, 5 * size, 5 * size),
      ('all-reduce', 'data+fsdp', 5, 5 * size, 5 * size * 3 // 2),
      ('all-gather', 'fsdp', 1, 2 * size, size),
    )
  }
