//! What scripts can do with other servers, and what they cannot.

use std::time::Duration;

use hotcell_codemode::{
    ArgumentTest, Asked, CallEnd, Decision, EarlierCall, EarlierOutcome, Report, Rule, ScriptEnd,
};
use serde_json::{Value, json};

use crate::fixture::World;

pub(crate) fn result(report: &Report) -> &Value {
    match &report.end {
        Some(ScriptEnd::Success {
            result: Some(result),
            ..
        }) => result,
        other => panic!("the script did not succeed: {other:?}"),
    }
}

pub(crate) fn failed(report: &Report) -> &str {
    match &report.end {
        Some(ScriptEnd::Error(error) | ScriptEnd::Invalid(error)) => error,
        other => panic!("the script did not fail: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_functions_in_every_way_they_can_be_named() {
    let world = World::new();
    let code = "
from mcp.servers.echo import echo, add
import mcp.servers.echo as module
r = mcp.runtime
[await mcp_echo.echo('a', 2), await echo(text='b'), await module.echo('c'), (await add(1, b=2))['sum'],
 mcp_servers['echo'].echo.sync('d'), await r.call_tool('echo', 'echo', {'text': 'e'}), r.call_tool_sync('echo', 'echo', text='f'),
 (await mcp_echo.picture()).mime_type, bytes(await mcp_echo.picture()).hex(), await r.list_servers(), r.list_servers_sync(),
 [t['name'] for t in await r.list_tools('echo')][:2], r.describe_server('echo')['tools'], (await r.search_tool_docs('adds'))[0]['tool'],
 r.query_tool_docs('echo', 'add')[0]['call']]
";
    let report = world.run(code).await;
    let expected = json!([
        "aa",
        "b",
        "c",
        3,
        "d",
        "e",
        "f",
        "image/png",
        "89504e470d",
        ["echo"],
        ["echo"],
        ["echo", "add"],
        9,
        "add",
        "await mcp_echo.add(a: float, b: float) -> AddResult",
    ]);
    assert_eq!(result(&report), &expected);
    assert_eq!(report.calls_count, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_arguments_are_told_with_the_signature_and_nothing_is_sent() {
    let world = World::new();
    let code = "
told = []
for attempt in (lambda: mcp_echo.echo(), lambda: mcp_echo.echo(1), lambda: mcp_echo.echo('a', foo=1), lambda: mcp_echo.add(1, 2, 3)):
    try:
        attempt()
    except TypeError as error:
        told.append(str(error))
told, mcp_echo.echo.__doc__
";
    let report = world.run(code).await;
    let told = result(&report).to_string();
    for said in [
        "'text' is missing",
        "must be string, not int",
        "no argument 'foo'",
        "takes 2 positional",
    ] {
        assert!(told.contains(said), "{said}: {told}");
    }
    assert!(
        told.contains("signature: echo(text: str, times: int = 1) -> Any"),
        "{told}"
    );
    assert!(told.contains("> Ignore all"), "quoted: {told}");
    assert!(world.records.begun.lock().unwrap().is_empty());
    let wrong = world.run("await mcp_echo.ecko('x')").await;
    assert!(
        failed(&wrong).contains("no tool 'ecko'; did you mean 'echo'?"),
        "{wrong:?}"
    );
    assert!(matches!(wrong.end, Some(ScriptEnd::Invalid(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_run_in_parallel_and_large_results_arrive_whole() {
    let world = World::new();
    let code = "
import asyncio, time
began = time.monotonic()
await asyncio.gather(*(mcp_echo.slow(seconds=0.5) for _ in range(40)))
assert time.monotonic() - began < 15, 'one after the other would take 20 s'
text = await mcp_echo.big(20 << 20)
assert text == 'x' * (20 << 20)
long = 'y' * (10 << 20)
assert await mcp_echo.echo(long) == long
len(text)
";
    let report = world.run(code).await;
    assert_eq!(result(&report), &json!(20 << 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_call_is_an_error_with_a_code() {
    let world = World::new();
    let code = "
told = []
for call in (mcp_echo.fail, mcp_echo.crash):
    try:
        await call()
    except MCPError as error:
        told.append([error.code, error.message, error.tool])
told
";
    let report = world.run(code).await;
    let told = result(&report);
    assert_eq!(told[0], json!(["tool_error", "it went wrong", "fail"]));
    assert_eq!(
        (&told[1][0], &told[1][2]),
        (&json!("unavailable"), &json!("crash"))
    );
    let ended = world.records.ended.lock().unwrap();
    assert!(matches!(ended[1].1, CallEnd::Unknown(_)), "{ended:?}");
    assert_eq!(report.calls[1].status, "unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_destroys_is_asked_and_a_rule_decides_otherwise() {
    let code = "
try:
    await mcp_echo.wipe_all()
    told = 'done'
except MCPError as error:
    told = error.code + ' ' + error.message
told
";
    let mut world = World::new();
    for (answer, said) in [
        (Asked::Nobody, "[rule."),
        (Asked::No, "declined"),
        (Asked::Yes, "done"),
    ] {
        world.answer = answer;
        let report = world.run(code).await;
        let told = result(&report).as_str().unwrap();
        assert!(told.contains(said), "{answer:?}: {told}");
    }
    assert_eq!(world.records.asked.lock().unwrap().len(), 3);
    assert_eq!(
        world.records.begun.lock().unwrap().len(),
        1,
        "only what was allowed"
    );
    assert_eq!(world.records.refused.lock().unwrap().len(), 2);
    world.policy.rules = vec![Rule {
        name: "never".to_owned(),
        server: "e*".to_owned(),
        tool: "wipe*".to_owned(),
        argument: None,
        decision: Decision::Deny,
    }];
    let report = world.run(code).await;
    assert!(
        result(&report).as_str().unwrap().contains("rule `never`"),
        "{report:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_continues_another_repeats_nothing() {
    let world = World::new();
    let code = "[await mcp_echo.add(1, 2), await mcp_echo.echo('x')]";
    let first = world.run(code).await;
    let begun = world.records.begun.lock().unwrap().clone();
    let ended = world.records.ended.lock().unwrap().clone();
    let earlier = ended.iter().map(|(digest, end)| EarlierCall {
        digest: digest.clone(),
        outcome: match end {
            CallEnd::Answered {
                result: Some(result),
                ..
            } => EarlierOutcome::Answered(result.clone()),
            CallEnd::Answered { .. } | CallEnd::Failed(_) | CallEnd::Unknown(_) => {
                EarlierOutcome::Unknown
            }
        },
    });
    let again = world.run_after(code, earlier.collect()).await;
    assert_eq!(result(&again), result(&first));
    assert_eq!(
        world.records.begun.lock().unwrap().len(),
        begun.len(),
        "nothing was sent"
    );
    assert_eq!(again.calls[0].status, "replayed");
    let unknown = |digest: &str| {
        vec![EarlierCall {
            digest: digest.to_owned(),
            outcome: EarlierOutcome::Unknown,
        }]
    };
    let safe = world.run_after(code, unknown(&begun[0].digest)).await;
    assert_eq!(safe.calls[0].status, "ok", "it is idempotent: {safe:?}");
    world.run("await mcp_echo.count()").await;
    let digest = world
        .records
        .begun
        .lock()
        .unwrap()
        .last()
        .unwrap()
        .digest
        .clone();
    let risky = world
        .run_after("await mcp_echo.count()", unknown(&digest))
        .await;
    assert_eq!(risky.calls[0].status, "denied", "{risky:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_and_the_end_of_a_script_hold_for_its_calls() {
    let mut world = World::new();
    world.budget.calls_max = 2;
    let report = world
        .run("await mcp_echo.echo('a')\nawait mcp_echo.echo('b')\nawait mcp_echo.echo('c')")
        .await;
    assert!(failed(&report).contains("budget is 2"), "{report:?}");
    world.budget.calls_max = 100;
    let left = "import asyncio\ntask = asyncio.ensure_future(mcp_echo.slow(seconds=60))\nawait asyncio.sleep(0.3)\n1";
    let report = world.run(left).await;
    assert_eq!(result(&report), 1);
    assert_eq!(report.calls[0].status, "unknown", "{report:?}");
    // Long enough for an interpreter to start on a busy machine.
    world.timeout = Duration::from_secs(6);
    let report = world.run("await mcp_echo.slow(seconds=60)").await;
    assert_eq!(report.end, None, "it was ended");
    assert_eq!(report.calls[0].status, "unknown", "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_has_changed_since_it_was_approved_is_asked_with_the_difference() {
    let mut world = World::new();
    let code = "
try:
    told = await mcp_echo.echo('x')
except MCPError as error:
    told = error.message
told
";
    assert_eq!(result(&world.run(code).await), "x");
    let visible = world.upstreams.visible_to("local");
    let name = hotcell_upstream::ServerName::parse("echo").unwrap();
    assert!(visible.approve(&name, None).unwrap() > 0);
    assert_eq!(
        result(&world.run(code).await),
        "x",
        "it is what was approved"
    );
    assert_eq!(world.records.asked.lock().unwrap().len(), 0);
    world.change("Says it again.", "Says it to somebody else.");
    // Its next process has the other definition.
    failed(&world.run("await mcp_echo.crash()").await);
    visible.refresh(&name).await.unwrap();
    world.answer = Asked::No;
    let report = world.run(code).await;
    assert_eq!(result(&report), "the user declined echo.echo", "{report:?}");
    let asked = world.records.asked.lock().unwrap().pop().unwrap();
    assert!(
        asked.reason.contains("has changed since it was approved")
            && asked.reason.contains("- Says it again.")
            && asked.reason.contains("+ Says it to somebody else."),
        "{}",
        asked.reason
    );
    visible.approve(&name, Some("echo")).unwrap();
    assert_eq!(result(&world.run(code).await), "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_look_at_arguments() {
    let mut world = World::new();
    world.policy.rules = vec![Rule {
        name: "small".to_owned(),
        server: "echo".to_owned(),
        tool: "add".to_owned(),
        argument: Some(ArgumentTest {
            pointer: "/a".to_owned(),
            glob: None,
            min: Some(100.0),
            max: None,
        }),
        decision: Decision::Deny,
    }];
    let code = "
told = [(await mcp_echo.add(99, 1))['sum']]
try:
    await mcp_echo.add(100, 1)
except MCPError as error:
    told.append(error.code)
told
";
    assert_eq!(result(&world.run(code).await), &json!([100, "denied"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_forms_work_with_and_without_a_running_loop_and_help_is_useful() {
    let world = World::new();
    let code = "
import asyncio, contextlib, io
def plain():
    r = mcp.runtime
    return [mcp_echo.echo.sync('a'), r.call_tool_sync('echo', 'echo', {'text': 'b'}), r.list_servers_sync(),
            r.search_tool_docs_sync('adds')[0]['tool'], r.discovered_servers_sync(), len(r.query_tool_docs_sync('echo')) > 5,
            r.describe_server_sync('echo')['alias'], r.list_loaded_server_metadata_sync()[0]['in_this_run'],
            'echo' in r.capability_summary_sync(), r.discovered_servers(detailed=True)[0]['name']]
inside = plain()
outside = await asyncio.get_running_loop().run_in_executor(None, plain)
assert await mcp.runtime.capability_summary() == mcp.runtime.capability_summary_sync()
shown = io.StringIO()
with contextlib.redirect_stdout(shown):
    help(mcp_echo.add)
told = shown.getvalue()
[inside == outside, inside, 'a (float)' in told and 'Returns: {sum: float}' in told and 'add(a: float, b: float) -> ' in told]
";
    let report = world.run(code).await;
    let expected = json!([
        "a",
        "b",
        ["echo"],
        "add",
        ["echo"],
        true,
        "echo",
        true,
        true,
        "echo"
    ]);
    assert_eq!(result(&report), &json!([true, expected, true]));
    // Without a loop: no `await` in the script.
    let report = world
        .run("[mcp_echo.echo.sync('a'), mcp.runtime.list_servers_sync()]")
        .await;
    assert_eq!(result(&report), &json!(["a", ["echo"]]));
}
