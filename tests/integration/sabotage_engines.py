"""What no container engine takes, and what makes the server run or trust something else; see test_smoke_sabotage."""

from __future__ import annotations

from dataclasses import replace

from tests.integration.sabotage import Broken, Cases
from tests.support.images import Member, elf, program

case = ENGINES = Cases()


# --- what container engines refuse


@case("image-config", "created is no time")
def time_of_creation(b: Broken) -> None:
    b.config["created"] = "yesterday"


@case("image-config", "history: created is no time")
def time_in_the_history(b: Broken) -> None:
    b.config["history"][0]["created"] = "2020"


@case("image-config", "empty_layer is neither true nor false")
def type_in_the_history(b: Broken) -> None:
    b.config["history"].append({"empty_layer": 1})


@case("image-config", "rootfs has the type none")
def other_type_of_files(b: Broken) -> None:
    b.config["rootfs"]["type"] = "none"


@case("image-config", "os.features is set")
def features_of_the_system(b: Broken) -> None:
    b.config["os.features"] = ["win32k"]


@case("image-config", "the port 99999/tcp")
def port_that_does_not_exist(b: Broken) -> None:
    b.settings["ExposedPorts"] = {"99999/tcp": {}}


@case("image-config", "the working directory srv is relative")
def relative_working_directory(b: Broken) -> None:
    b.settings["WorkingDir"] = "srv"


@case("image-settings", "/usr/bin/python3/x is no folder")
def working_directory_below_a_file(b: Broken) -> None:
    b.settings["WorkingDir"] = "/usr/bin/python3/x"


@case("image-settings", "the user '4294967296' is none")
def user_beyond_all_numbers(b: Broken) -> None:
    b.settings["User"] = "4294967296"


@case("image-config", "a text with a NUL")
def variable_with_a_nul(b: Broken) -> None:
    b.env("NAME", "a\0b")


@case("image-config", "its environment are too long")
def environment_that_no_program_starts_with(b: Broken) -> None:
    b.env("NAME", "x" * 200_000)


@case("image-blobs", "its media type is application/vnd.example.tar+zstd")
def layer_of_an_unknown_media_type(b: Broken) -> None:
    b.layers[-1] = replace(b.layers[-1], media_type="application/vnd.example.tar+zstd")


@case("image-blobs", "layer.nondistributable.v1.tar+zstd")
def layer_that_is_elsewhere(b: Broken) -> None:
    foreign = "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd"
    b.layers[-1] = replace(b.layers[-1], media_type=foreign)


# --- what runs, or is trusted, besides what is planned


@case("image-preloads", "the variable BASH_FUNC_exec%%")
def function_of_the_shell(b: Broken) -> None:
    b.env("BASH_FUNC_exec%%", "() { /opt/x; }")


@case("image-preloads", "the variable PS4")
def prompt_of_the_shell(b: Broken) -> None:
    b.env("PS4", "$(/opt/x)")


@case("image-preloads", "the variable CC")
def another_compiler(b: Broken) -> None:
    b.env("CC", "/opt/x")


@case("image-preloads", "the variable TRITON_CACHE_MANAGER")
def module_of_triton(b: Broken) -> None:
    b.env("TRITON_CACHE_MANAGER", "other:Manager")


@case("image-preloads", "the variable IBV_DRIVERS")
def driver_of_libibverbs(b: Broken) -> None:
    b.env("IBV_DRIVERS", "/opt/x")


@case("image-preloads", "out of the cache of the variable TRITON_CACHE_DIR")
def compiled_code_in_a_cache(b: Broken) -> None:
    b.add({"opt/cache/a/__triton_launcher.so": program(elf())})
    b.env("TRITON_CACHE_DIR", "/opt/cache")


@case("image-preloads", "/etc/ssl/openssl.cnf, which names libraries")
def provider_of_openssl(b: Broken) -> None:
    b.add({"etc/ssl/openssl.cnf": b"openssl_conf = a\n[a]\nproviders = b\n[b]\nx = c\n[c]\nmodule = /opt/x.so\n"})


@case("image-preloads", "/etc/nsswitch.conf, which names libraries")
def service_of_names(b: Broken) -> None:
    library = Member(elf(), 0o755)
    b.add({"etc/nsswitch.conf": b"passwd: x files\n", "usr/lib/aarch64-linux-gnu/libnss_x.so.2": library})


@case("image-preloads", "/etc/libibverbs.d/x.driver, which names libraries")
def driver_in_a_file(b: Broken) -> None:
    b.add({"etc/libibverbs.d/x.driver": b"driver x\n"})


@case("image-settings", "the variable SSLKEYLOGFILE")
def keys_of_connections(b: Broken) -> None:
    b.env("SSLKEYLOGFILE", "/tmp/keys")


@case("image-settings", "the variable HF_ENDPOINT")
def another_hub(b: Broken) -> None:
    b.env("HF_ENDPOINT", "http://127.0.0.1:1")


@case("image-settings", "the variable https_proxy")
def proxy(b: Broken) -> None:
    b.env("https_proxy", "http://127.0.0.1:1")


@case("image-settings", "the variable VLLM_SERVER_DEV_MODE is '1'")
def server_that_runs_what_clients_say(b: Broken) -> None:
    b.env("VLLM_SERVER_DEV_MODE", "1")
