"""The loop of an agent. Replace `model` with a call of a language model: it is given the tools and what was said so far,
and answers with a tool and its arguments, or with a text for the user."""

import asyncio

from hotcell_client import call, connect


def model(tools, history):
    """Looks at the last answer and decides, as a language model would."""
    assert "execute_code" in tools
    if not history:
        return {"tool": "execute_code", "arguments": {"code": "print(undefined)"}}
    last = history[-1]["answer"]
    if last["exit_code"] != 0:
        # The traceback is in the answer, so a model can correct itself.
        assert "NameError" in last["stderr"]
        return {"tool": "execute_code", "arguments": {"code": "print(sum(range(10)))"}}
    return {"text": f"The sum is {last['stdout'].strip()}."}


async def main():
    async with connect() as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        history = []
        for _ in range(8):
            wish = model(tools, history)
            if "text" in wish:
                print(wish["text"])
                return
            answer = await call(client, wish["tool"], **wish["arguments"])
            history.append({**wish, "answer": answer})
        raise RuntimeError("the model did not come to an end")


asyncio.run(main())
