"""Pickles whose real load would run code: known gadget functions, in every way that a pickle can reach a function.

The names are those of public advisories on pickle scanners and of the papers on them; what the payload would do is
create the file `canary`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from tests.inspection.writer import legacy_bytes, torch_zip_bytes, zip_bytes

NAMES = [
    "builtins.eval",
    "builtins.exec",
    "builtins.compile",
    "builtins.open",
    "builtins.getattr",
    "builtins.__import__",
    "builtins.breakpoint",
    "builtins.input",
    "builtins.setattr",
    "builtins.delattr",
    "builtins.vars",
    "builtins.globals",
    "builtins.map",
    "builtins.filter",
    "__builtin__.eval",
    "__builtin__.execfile",
    "__builtin__.apply",
    "__builtin__.file",
    "__builtin__.reload",
    "os.system",
    "os.popen",
    "os.spawnl",
    "os.spawnv",
    "os.spawnvp",
    "os.execl",
    "os.execv",
    "os.execve",
    "os.remove",
    "os.unlink",
    "os.rename",
    "os.putenv",
    "os.fork",
    "os.posix_spawn",
    "os.kill",
    "os.startfile",
    "os.open",
    "os.write",
    "os.chmod",
    "os.symlink",
    "os.makedirs",
    "posix.system",
    "posix.popen",
    "posix.execv",
    "posix.posix_spawn",
    "nt.system",
    "subprocess.run",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "subprocess.Popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "commands.getoutput",
    "pty.spawn",
    "platform.popen",
    "popen2.popen2",
    "shutil.rmtree",
    "shutil.copy",
    "shutil.move",
    "shutil.copyfile",
    "sys.exit",
    "sys.setprofile",
    "sys.settrace",
    "socket.socket",
    "socket.create_connection",
    "http.client.HTTPSConnection",
    "urllib.request.urlopen",
    "urllib.request.urlretrieve",
    "urllib2.urlopen",
    "ftplib.FTP",
    "smtplib.SMTP",
    "telnetlib.Telnet",
    "webbrowser.open",
    "xmlrpc.client.ServerProxy",
    "asyncio.unix_events._UnixSubprocessTransport._start",
    "asyncio.create_subprocess_shell",
    "ssl.get_server_certificate",
    "importlib.import_module",
    "importlib.reload",
    "imp.load_source",
    "imp.load_module",
    "pkgutil.resolve_name",
    "pkgutil.walk_packages",
    "runpy.run_path",
    "runpy.run_module",
    "runpy._run_code",
    "zipimport.zipimporter",
    "code.InteractiveInterpreter.runcode",
    "code.interact",
    "codeop.compile_command",
    "compileall.compile_file",
    "py_compile.compile",
    "ctypes.CDLL",
    "ctypes.cdll.LoadLibrary",
    "ctypes.WinDLL",
    "_ctypes.dlopen",
    "cffi.FFI.dlopen",
    "marshal.loads",
    "marshal.load",
    "pickle.loads",
    "pickle.load",
    "_pickle.loads",
    "cPickle.loads",
    "shelve.open",
    "dbm.open",
    "types.CodeType",
    "types.FunctionType",
    "types.LambdaType",
    "operator.attrgetter",
    "operator.methodcaller",
    "operator.itemgetter",
    "_operator.attrgetter",
    "_operator.methodcaller",
    "functools.reduce",
    "functools.partial",
    "itertools.starmap",
    "bdb.Bdb.run",
    "bdb.Bdb.runeval",
    "pdb.run",
    "pdb.Pdb",
    "trace.Trace.run",
    "timeit.timeit",
    "timeit.main",
    "cProfile.run",
    "cProfile.runctx",
    "profile.run",
    "profile.Profile.runctx",
    "doctest.debug_script",
    "doctest.run_docstring_examples",
    "idlelib.run.Executive.runcode",
    "idlelib.pyshell.ModifiedInterpreter.runcommand",
    "idlelib.calltip.Calltip.fetch_tip",
    "idlelib.autocomplete.AutoComplete.fetch_completions",
    "idlelib.debugobj.ObjectTreeItem.SetText",
    "lib2to3.pgen2.grammar.Grammar.loads",
    "lib2to3.pgen2.pgen.ParserGenerator.make_label",
    "logging.config.listen",
    "logging.config.fileConfig",
    "logging.FileHandler",
    "logging.handlers.SocketHandler",
    "tempfile.mktemp",
    "tempfile.NamedTemporaryFile",
    "io.open",
    "io.FileIO",
    "_io.FileIO",
    "io.open_code",
    "pathlib.Path.write_text",
    "pathlib.Path.unlink",
    "fileinput.input",
    "tarfile.open",
    "zipfile.ZipFile",
    "linecache.getlines",
    "mimetypes.init",
    "distutils.file_util.write_file",
    "distutils.spawn.spawn",
    "ensurepip._run_pip",
    "venv.create",
    "multiprocessing.Process",
    "multiprocessing.util.spawnv_passfds",
    "concurrent.futures.ThreadPoolExecutor",
    "threading.Thread",
    "_thread.start_new_thread",
    "signal.signal",
    "atexit.register",
    "gc.get_objects",
    "inspect.getattr_static",
    "typing._eval_type",
    "typing.get_type_hints",
    "dataclasses._create_fn",
    "collections.namedtuple",
    "ast.literal_eval",
    "cgitb.handler",
    "configparser.ConfigParser",
    "csv.writer",
    "sqlite3.connect",
    "turtle.write_docstringdict",
    "nturl2path.url2pathname",
    "uuid._get_command_stdout",
    "_aix_support._read_cmd_output",
    "_osx_support._read_output",
    "_pyrepl.pager.pipe_pager",
    "test.support.script_helper.assert_python_ok",
    "unittest.mock._importer",
    "antigravity.geohash",
    "pip._internal.cli.main.main",
    "pip.main",
    "setuptools.sandbox.run_setup",
    "pkg_resources.run_script",
    "numpy.load",
    "numpy.loads",
    "numpy.testing._private.utils.runstring",
    "numpy.testing._private.utils.rundocs",
    "numpy.f2py.crackfortran.getlincoef",
    "numpy.f2py.crackfortran.param_eval",
    "numpy.f2py.crackfortran._eval_length",
    "numpy.distutils.exec_command.exec_command",
    "torch.load",
    "torch.hub.load",
    "torch.jit.load",
    "torch.serialization.load",
    "torch.utils.cpp_extension.load_inline",
    "torch.utils.collect_env.run",
    "torch._inductor.codecache.compile_file",
    "torch.fx.graph_module.reduce_graph_module",
    "torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_guards_expression",
    "torch.jit.unsupported_tensor_ops.execWrapper",
    "torch.utils.bottleneck.__main__.run_cprofile",
    "torch.utils._config_module.load_config",
    "torch._dynamo.guards.GuardBuilder.get",
    "torch.utils.data.datapipes.utils.decoder.basichandlers",
    "torch.distributed.run.main",
    "pandas.io.pickle.read_pickle",
    "pandas.eval",
    "joblib.load",
    "joblib.numpy_pickle.load",
    "dill.loads",
    "dill._dill._create_function",
    "cloudpickle.cloudpickle._make_function",
    "cloudpickle.loads",
    "tensorflow.io.write_file",
    "tensorflow.keras.models.load_model",
    "transformers.pipeline",
    "yaml.unsafe_load",
    "jinja2.Template.render",
    "requests.get",
    "requests.api.post",
    "aiohttp.client.request",
    "paramiko.SSHClient.exec_command",
    "IPython.terminal.embed.embed",
    "IPython.utils.process.system",
    "pydoc.locate",
    "pydoc.pipepager",
    "pydoc.tempfilepager",
]

Form = Callable[[str, str, str], bytes]


def _text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _args(canary: str) -> bytes:
    return _text(canary) + _text("w") + b"\x86"  # ("<canary>", "w"): opens it, names it, or runs it


def by_global(module: str, name: str, canary: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode() + _args(canary) + b"R"


def by_stack_global(module: str, name: str, canary: str) -> bytes:
    return _text(module) + _text(name) + b"\x93" + _args(canary) + b"R"


def by_memo(module: str, name: str, canary: str) -> bytes:
    """The two halves of the name come out of the memo, in the wrong order."""
    parts = _text(name) + b"q\1" + b"0" + _text(module) + b"q\2" + b"0"
    return parts + b"h\2h\1\x93" + _args(canary) + b"R"


def by_inst(module: str, name: str, canary: str) -> bytes:
    return b"(" + _text(canary) + _text("w") + b"i" + f"{module}\n{name}\n".encode()


def by_obj(module: str, name: str, canary: str) -> bytes:
    return b"(c" + f"{module}\n{name}\n".encode() + _text(canary) + _text("w") + b"o"


def by_new_object(module: str, name: str, canary: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode() + _args(canary) + b"\x81"


def by_new_object_with_keywords(module: str, name: str, canary: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode() + _args(canary) + b"}\x92"


def by_getattr(module: str, name: str, canary: str) -> bytes:
    """getattr(module's own name, …): the function is looked up while loading."""
    return b"cbuiltins\ngetattr\nc" + f"{module}\n__dict__\n".encode() + _text(name) + b"\x86R" + _args(canary) + b"R"


def by_build(module: str, name: str, canary: str) -> bytes:
    """The function arrives as an object's __setstate__."""
    state = b"}" + _text("__setstate__") + b"c" + f"{module}\n{name}\n".encode() + b"s"
    return b"c__main__\nNet\n)\x81" + state + b"b" + _text(canary) + b"b"


def then_broken(module: str, name: str, canary: str) -> bytes:
    """The payload comes first, then bytes that are no pickle: a load has run it before it fails."""
    return by_global(module, name, canary) + b"0\xff\xfe"


FORMS: tuple[Form, ...] = (
    by_global,
    by_stack_global,
    by_memo,
    by_inst,
    by_obj,
    by_new_object,
    by_new_object_with_keywords,
    by_getattr,
    by_build,
    then_broken,
)


def _bare(payload: bytes) -> bytes:
    return b"\x80\x04}" + _text("scaler") + payload + b"s."


def _after_stop(payload: bytes) -> bytes:
    return b"\x80\x02}.\x80\x04" + payload + b"."


def _in_zip(payload: bytes) -> bytes:
    return zip_bytes([("a/data.pkl", _bare(payload)), ("a/version", b"3\n")])


def _in_legacy(payload: bytes) -> bytes:
    head = legacy_bytes({})
    at = head.index(b"\x80\x02}(u.\x80\x02](e.")
    return head[:at] + _bare(payload) + b"\x80\x02](e."


def _in_a_nested_tensor(payload: bytes) -> bytes:
    """Within the bytes that torch.storage._load_from_bytes would unpickle."""
    inner = b"\x80\x02" + payload + b"."
    wrapped = b"ctorch.storage\n_load_from_bytes\nB" + struct.pack("<I", len(inner)) + inner + b"\x85R"
    return b"\x80\x03" + wrapped + b"."


CONTAINERS: tuple[Callable[[bytes], bytes], ...] = (_bare, _in_zip, _in_legacy, _after_stop, _in_a_nested_tensor)


def gadget_files(canary: str) -> Iterator[tuple[str, str, bytes]]:
    """(file name, dotted name of the gadget, bytes) of every name in every form, the containers in turn."""
    count = 0
    for dotted in NAMES:
        module, _, name = dotted.rpartition(".")
        for form in FORMS:
            container = CONTAINERS[count % len(CONTAINERS)]
            if form is then_broken and container in (_after_stop, _in_a_nested_tensor):
                container = _in_zip
            yield f"{count:05}_{form.__name__}.pt", dotted, container(form(module, name, canary))
            count += 1


def harmless() -> bytes:
    """A file without any gadget, which must not be called dangerous."""
    return torch_zip_bytes({"epoch": 3})
