"""Finds what is wrong in the manifests before a cluster does, or before nobody does.

    python -m deploy.check                  # every overlay, and every component that no overlay has
    python -m deploy.check FOLDER…          # overlays of your own

It renders with ``kubectl kustomize``, checks schemas, merges pod templates as the operator does, and looks at the
result.
"""
