"""An agent as the client of the conformance suite of the protocol: ``conformance_agent.py URL``.

The suite states the scenario and its credentials in variables.
"""

import json
import os
import sys

from flink_skills import Agent, AgentsExecutionEnvironment, mcp_server

ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
TOOLS = {
    "tools_call": "add_numbers",
    "elicitation-sep1034-client-defaults": "test_client_elicitation_defaults",
    "sse-retry": "test_reconnection",
    "auth/client-credentials-basic": "test-tool",
    "auth/client-credentials-jwt": "test-tool",
}


def connection() -> dict:
    found = {"url": sys.argv[-1], "timeout": 10}
    for key, name in (("client_secret", "client_secret"), ("private_key_pem", "private_key")):
        if key in CONTEXT:
            os.environ["SECRET_OF_CLIENT"] = CONTEXT[key]
            found["auth"] = {"client_id": CONTEXT["client_id"], name: "${SECRET_OF_CLIENT}"}
    if "signing_algorithm" in CONTEXT:
        found["auth"]["signing_algorithm"] = CONTEXT["signing_algorithm"]
    return found


class Client(Agent):
    model = "offline"

    @mcp_server
    def server(self):
        return connection()

    async def on_event(self, event, ctx):
        return await ctx.call_tool(event["tool"], **ARGUMENTS.get(event["tool"], {})) if event["tool"] else None


if __name__ == "__main__":
    tool = TOOLS.get(os.environ.get("MCP_CONFORMANCE_SCENARIO", ""), "")
    answers = [{"tool": tool, "wait_id": tool, "answer": {}}] if tool else []
    env = AgentsExecutionEnvironment.get_execution_environment()
    output = env.from_list([{"tool": tool}], "tool").apply(Client).answers(answers, "tool")
    print(output.to_list(raise_on_error=True), file=sys.stderr)
