from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.execution import BackendSettings, create_backend
from flink_skills.integrations.remote import RemoteSettings

GIVEN = {"url": "http://router:8080/", "api": "https://10.0.0.1", "template": "python", "token": "secret-token"}


def read(
    environ: dict[str, str] | None = None, account: Path = Path("/no/such/account"), **more: str
) -> RemoteSettings:
    return RemoteSettings.read({**GIVEN, **more}, environ or {}, account)


def test_what_is_not_set_has_a_default() -> None:
    settings = read()

    assert (settings.url, settings.namespace, settings.port) == ("http://router:8080", "default", 8888)
    assert (settings.start_timeout, settings.idle_timeout) == (120.0, 900.0)


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(read(**{"router-token": "secret"}))


def test_the_pods_own_api_and_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}

    settings = read(environ, tmp_path, api="", token="")

    assert settings.api == "https://[fd00::1]:6443"
    assert settings.bearer() == "first"
    (tmp_path / "token").write_text("second\n")
    assert settings.bearer() == "second"
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        settings.bearer()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": ""}, "remote.url cannot be used: the address does not start with http:// or https://"),
        ({"url": "router:8080"}, "does not start with http:// or https://. Write"),
        ({"url": "http://user:pass@router"}, "the address contains a user or a password (http://router)"),
        ({"url": "http://user:pa/ss@router"}, "an unescaped '/', '?' or '#' (http://router)"),
        ({"url": "http://router:808o"}, "the port is not a number"),
        ({"url": "http://router?key=s3cret"}, "it has a query or a fragment (http://router)"),
        ({"api": "http://10.0.0.1"}, "without encryption: write https://10.0.0.1"),
        ({"api": ""}, "remote.api is not set and this worker does not run in a pod"),
        ({"token": ""}, "remote.token is not set"),
        ({"template": ""}, "remote.template is not set"),
        ({"template": "My Template"}, "is not a valid Kubernetes name"),
        ({"namespace": "a/b"}, "is not a valid Kubernetes name"),
        ({"port": "0"}, "is not a valid port"),
        ({"port": "http"}, "is not a valid port"),
        ({"start-timeout": "soon"}, "remote.start-timeout: 'soon'"),
        ({"idle-timeout": "0"}, "is not above 0"),
    ],
)
def test_what_cannot_be_used_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**options)

    assert said in str(caught.value)


def test_an_unknown_option_has_near_misses() -> None:
    with pytest.raises(UnknownNameError, match="'warm-pool'"):
        read(warmpool="x")


def test_certificates_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("no certificate")

    with pytest.raises(ConfigError, match=r"skills\.shell\.remote\.ca-file"):
        read(**{"ca-file": str(tmp_path / "ca")}).tls()


def test_the_registry_knows_it() -> None:
    backend = create_backend("remote", BackendSettings(options=GIVEN))

    assert (backend.name, backend.level.name, backend.proves_itself) == ("remote", "REMOTE", True)
