# SPDX-License-Identifier: MIT
"""The package agrees with weft.h as the compiler sees it, and says so if the library does not."""
import ast
import glob
import os
import re
import subprocess
import sys

import pytest
from weft import abi
from weft.drop_in import NAMES

HEADER = os.environ["WEFT_HEADER"]
GENERATE = os.environ["WEFT_GENERATE_ABI"]
CC = os.environ["WEFT_CC"]


def c_name(name):
    return "weft_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def declarations():
    """weft.h and its parts, without comments."""
    text = ""
    for part in glob.glob(HEADER[:-len(".h")] + "*.h"):
        with open(part, encoding="utf-8") as file:
            text += re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    return text


def compiled(tmp_path, source):
    (tmp_path / "layout.c").write_text(
        f'#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{\n{source}\nreturn 0; }}\n')
    subprocess.run([CC, "-o", tmp_path / "layout", tmp_path / "layout.c"], check=True)
    return subprocess.run([tmp_path / "layout"], check=True, capture_output=True,
                          text=True).stdout.splitlines()


def test_structs(tmp_path):
    source, expected = "", []
    for name, struct in abi.STRUCTS.items():
        source += f'printf("{name} %zu\\n", sizeof({name}));\n'
        expected.append(f"{name} {abi.sizeof(struct)}")
        for field, _ in struct._fields_:
            source += (f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                       f'sizeof((({name} *)0)->{field}));\n')
            place = getattr(struct, field)
            expected.append(f"{name}.{field} {place.offset} {place.size}")
    assert len(expected) > 150
    assert compiled(tmp_path, source) == expected


def test_enumerations(tmp_path):
    text = declarations()
    source, expected = "", []
    for enum, body in re.findall(r"typedef enum (\w+) \{(.*?)\}", text, flags=re.S):
        members = list(getattr(abi, "".join(w.capitalize() for w in enum.split("_")[1:])))
        names = re.findall(r"WEFT_\w+", body)
        assert len(names) == len(members), enum
        for name, member in zip(names, members):
            assert name.endswith(member.name)
            source += f'printf("%d\\n", (int){name});\n'
            expected.append(str(int(member)))
    assert len(expected) > 40
    assert compiled(tmp_path, source) == expected


def test_functions():
    """As many arguments as the header declares, and pointers where it has them."""
    text = re.sub(r"^#.*?$", "", declarations(), flags=re.M)
    declared = re.findall(r"WEFT_API\s+([^;]*?)\b(weft_\w+)\((.*?)\);", text, flags=re.S)
    assert sorted(name for _, name, _ in declared) == sorted(abi.FUNCTIONS)
    for _, name, arguments in declared:
        arguments = re.sub(r"void \(\*function\)\([^)]*\)", "void *function", arguments)
        kinds = ["*" in argument for argument in arguments.split(",") if argument != "void"]
        types = abi.FUNCTIONS[name][1].values()
        assert [t in (abi.c_void_p, abi.c_char_p) for t in types] == kinds, name


@pytest.mark.parametrize("line", [
    "int weft_own(void);", "typedef struct weft_a { long b; } weft_a;",
    "typedef enum weft_a { WEFT_A_B } weft_a;", "WEFT_API weft_unknown weft_own(void);"])
def test_generator_refuses_what_it_does_not_know(tmp_path, line):
    (tmp_path / "own.h").write_text(line + "\n")
    done = subprocess.run([sys.executable, GENERATE, tmp_path / "own.h", tmp_path / "abi.py"],
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "generate_abi: does not" in done.stderr


def python(script, **environment):
    return subprocess.run([sys.executable, "-c", script], env=os.environ | environment,
                          capture_output=True, text=True, check=False)


@pytest.mark.parametrize("source, message", [
    ("unsigned weft_version(void) { return 98705; }",
     f"is weft 9.87.5; this package was made for {abi.VERSION_MAJOR}.{abi.VERSION_MINOR}"),
    (f"int weft_version(void) {{ return {10000 * abi.VERSION_MAJOR + 100 * abi.VERSION_MINOR}; }}",
     "lacks weft_"),
    ("int other;", "cannot load its library"),
])
def test_other_library(tmp_path, source, message):
    (tmp_path / "other.c").write_text(source)
    library = tmp_path / "libother.so"
    subprocess.run([CC, "-shared", "-fPIC", "-o", library, tmp_path / "other.c"], check=True)
    done = python("import weft", WEFT_LIBRARY=str(library))
    assert "ImportError" in done.stderr and message in done.stderr
    done = python("import weft", WEFT_LIBRARY="/no/such/library.so")
    assert "WEFT_LIBRARY can name another one" in done.stderr


def test_import_loads_little():
    done = python("import sys, weft\n"
                  "assert not {'numpy', 'torch'} & set(sys.modules)\n"
                  "assert 'libcuda' not in open('/proc/self/maps').read()\n"
                  "assert weft.query_machine(weft.Machine.CPU).is_usable\n"
                  "print(weft.__version__)")
    assert done.stdout == f"{abi.VERSION_MAJOR}.{abi.VERSION_MINOR}.{abi.VERSION_PATCH}\n", done


@pytest.mark.parametrize("name", NAMES)
def test_version_of_the_drop_in(name):
    path = os.path.join(os.path.dirname(GENERATE), name, "pyproject.toml")
    with open(path, encoding="utf-8") as file:
        version = re.search(r'^version = "(.*)"', file.read(), flags=re.M)[1]
    assert version == f"{abi.VERSION_MAJOR}.{abi.VERSION_MINOR}.{abi.VERSION_PATCH}"


# ------------------------------------------------------------ docstrings

INTERNAL = {"allocator", "arrays", "dlpack", "library", "objects",
            # PyTorch calls these
            "torch_backend", "torch_barrier", "torch_group", "torch_lanes", "torch_messages",
            "torch_reductions", "torch_works"}
NO_ARRAYS = {"args", "dtype", "gather", "group", "index_dtype", "like"}  # although Any


def public_functions(body, outer):
    """(node, docstrings around it) of functions and classes, methods too."""
    for node in body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name.startswith("_"):
            continue
        yield node, outer
        if isinstance(node, ast.ClassDef):
            yield from public_functions(node.body, f"{outer} {ast.get_docstring(node)}")


def takes_arrays(node):
    if isinstance(node, ast.ClassDef):
        return False
    return any(a.annotation is not None and re.search("Any|Tensor", ast.unparse(a.annotation))
               and a.arg not in NO_ARRAYS for a in [*node.args.args, *node.args.kwonlyargs])


def fields_of(node):
    return [field.target.id for field in node.body if isinstance(field, ast.AnnAssign)] \
        if any(ast.unparse(base) == "NamedTuple" for base in getattr(node, "bases", ())) else []


def test_docstrings():
    """All that is public has one, with shapes and types of arrays; tuples name their fields."""
    missing, num_seen = [], 0
    for path in glob.glob(os.path.join(os.path.dirname(GENERATE), "weft", "*.py")):
        name = os.path.basename(path).removesuffix(".py")
        if name in INTERNAL:
            continue
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        for node, outer in public_functions(tree.body, ast.get_docstring(tree)):
            num_seen += 1
            text = ast.get_docstring(node)
            if not text:
                missing.append(f"{name}.{node.name}: no docstring")
            elif any(f"- {field}: " not in text for field in fields_of(node)):
                missing.append(f"{name}.{node.name}: not all fields")
            elif takes_arrays(node) and not all(
                    re.search(sign, f"{outer} {text}", flags=re.S)
                    for sign in (r"\[.+\]", r"int\d|float\d|dtype|any type")):
                missing.append(f"{name}.{node.name}: no shapes or types")
    assert num_seen > 100
    assert not missing, "\n".join(missing)
