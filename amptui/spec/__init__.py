"""What the user points amptui at: a reference to a project, an amptui.yaml, a starter file.

`reference` and `settings` run in the client and never touch user code; `resolve` imports it, in the engine's process.
"""
