"""Cannot be imported."""

import no_such_package_anywhere  # noqa: F401
