//! Either rendering is enough: clients that show a model only the structured content, or only the
//! text, complete every story.

use hotcell_mcp::Options;
use serde_json::{Value, json};

use crate::world::{Client, PATIENCE, World, request};

/// The largest text, and the largest structured content as JSON, which is escaped.
const TEXT_BYTES_MAX: usize = 66 << 10;
const STRUCTURED_BYTES_MAX: usize = 100 << 10;

/// The rendering that a client shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    Structured,
    Text,
}

/// A client that shows only one rendering.
struct Shim<'a> {
    client: &'a Client,
    shows: Shows,
}

/// What it shows of an answer.
#[derive(Debug)]
struct Seen {
    is_error: bool,
    /// Everything as one text.
    shown: String,
    structured: Option<Value>,
    has_picture: bool,
}

impl Shim<'_> {
    async fn call(&self, tool: &str, arguments: Value) -> Seen {
        let calling = self.client.call_tool(request(tool, arguments));
        let result = tokio::time::timeout(PATIENCE, calling).await;
        let result = result.expect("it answers in time").expect("it answers");
        let texts = result.content.iter().filter_map(|block| block.as_text());
        let text: String = texts.map(|text| text.text.as_str()).collect();
        assert!(text.len() <= TEXT_BYTES_MAX, "{tool}: {}", text.len());
        let json = result.structured_content.as_ref().map(Value::to_string);
        let json_len = json.as_ref().map_or(0, String::len);
        assert!(json_len <= STRUCTURED_BYTES_MAX, "{tool}: {json_len}");
        let structured = result
            .structured_content
            .filter(|_| self.shows == Shows::Structured);
        Seen {
            is_error: result.is_error == Some(true),
            shown: json.filter(|_| structured.is_some()).unwrap_or(text),
            structured,
            has_picture: result
                .content
                .iter()
                .any(|block| block.as_image().is_some()),
        }
    }

    async fn ok(&self, tool: &str, arguments: Value) -> Seen {
        let seen = self.call(tool, arguments).await;
        assert!(!seen.is_error, "{:?}: {seen:?}", self.shows);
        seen
    }

    async fn refused(&self, code: &str, tool: &str, arguments: Value) -> Seen {
        let seen = self.call(tool, arguments).await;
        assert!(seen.is_error, "{:?}: {seen:?}", self.shows);
        seen.says(code);
        seen
    }
}

impl Seen {
    #[track_caller]
    fn says(&self, words: &str) {
        assert!(self.shown.contains(words), "no {words:?} in {}", self.shown);
    }

    /// The word after a mark.
    fn after(&self, mark: &str) -> Option<String> {
        let at = self.shown.find(mark)? + mark.len();
        let is_part = |c: &char| c.is_ascii_alphanumeric() || "_-".contains(*c);
        Some(self.shown[at..].chars().take_while(is_part).collect())
    }

    /// An id, wherever it is.
    fn id(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.after(prefix).expect("an id"))
    }

    /// The etag, whatever it is called here.
    fn etag(&self, name: &str) -> String {
        let json = self.after(&format!("\"{name}\":\""));
        let marks = ["current_etag: ", "etag "];
        json.or_else(|| marks.iter().find_map(|mark| self.after(mark)))
            .expect("an etag")
    }

    /// The output of a command, or the content of a file.
    fn content(&self) -> String {
        let Some(structured) = &self.structured else {
            let end = self
                .shown
                .rfind('[')
                .expect("the line that tells how it is");
            let (content, line) = self.shown.split_at(end);
            let is_cut = line.contains("goes on") || line.contains("no newline");
            let content = content
                .strip_suffix('\n')
                .filter(|_| is_cut)
                .unwrap_or(content);
            return content.to_owned();
        };
        if let Some(content) = structured["content"].as_str() {
            return content.to_owned();
        }
        let messages = structured["messages"].as_array().expect("messages").iter();
        messages
            .map(|message| message["data"].as_str().expect("text"))
            .collect()
    }
}

/// Runs a story with a client of each kind.
async fn with_shims(story: impl AsyncFn(&Shim<'_>)) {
    for shows in [Shows::Structured, Shows::Text] {
        let world = World::new().await;
        let client = world.client_with(Options::default(), false).await;
        let shim = Shim {
            client: &client,
            shows,
        };
        story(&shim).await;
    }
}

/// A container created by the shim's own client.
async fn spawned(shim: &Shim<'_>) -> String {
    shim.ok("spawn", json!({})).await.id("c_")
}

#[tokio::test]
async fn a_long_output_is_read_to_its_end() {
    with_shims(async |shim| {
        let container = spawned(shim).await;
        let short = json!({"container_id": container, "cmd": ["echo", "hello"], "wait_s": 50});
        let short = shim.ok("exec_start", short).await;
        short.says("succeeded");
        assert_eq!(short.content(), "hello\n");
        let cmd = ["seq", "1", "40000"];
        let start = json!({"container_id": container, "cmd": cmd, "wait_s": 50});
        let mut seen = shim.ok("exec_start", start).await;
        let exec = seen.id("e_");
        let mut output = seen.content();
        while let Some(after) = seen.after("after_seq=") {
            let after: u64 = after.parse().expect("a number");
            let poll = json!({"exec_id": exec, "after_seq": after, "wait_s": 50});
            seen = shim.ok("exec_poll", poll).await;
            output.push_str(&seen.content());
        }
        seen.says("succeeded");
        let lines = (1..=40_000).map(|number| format!("{number}\n"));
        assert!(output == lines.collect::<String>(), "{:?}", shim.shows);
    })
    .await;
}

#[tokio::test]
async fn output_that_comes_byte_by_byte_is_bounded_too() {
    with_shims(async |shim| {
        let container = spawned(shim).await;
        // Each byte is a message, because it is read before the next one is written.
        let script = "i=0; while [ $i -lt 3000 ]; do printf x; printf y >&2; i=$((i+1)); done";
        let cmd = ["sh", "-c", script];
        let start = json!({"container_id": container, "cmd": cmd, "wait_s": 50});
        let mut seen = shim.ok("exec_start", start).await;
        let exec = seen.id("e_");
        let mut count = seen.content().matches('x').count();
        while let Some(after) = seen.after("after_seq=") {
            let after: u64 = after.parse().expect("a number");
            let poll = json!({"exec_id": exec, "after_seq": after, "wait_s": 50});
            seen = shim.ok("exec_poll", poll).await;
            count += seen.content().matches('x').count();
        }
        assert_eq!(count, 3000);
    })
    .await;
}

#[tokio::test]
async fn a_long_file_is_read_part_by_part() {
    with_shims(async |shim| {
        let container = spawned(shim).await;
        let content = "aä€😀\n".repeat(15_000);
        let write = json!({"container_id": container, "path": "long", "content": content});
        let etag = shim.ok("fs_write", write).await.etag("etag");
        let (mut read, mut offset) = (String::new(), Some(0));
        while let Some(from) = offset {
            let part = json!({"container_id": container, "path": "long", "offset": from});
            let part = shim.ok("fs_read", part).await;
            assert_eq!(part.etag("etag"), etag);
            read.push_str(&part.content());
            let more = part.after("offset=");
            offset = more.map(|next| next.parse::<u64>().expect("a number"));
        }
        assert!(
            read == content,
            "{:?} {} {}",
            shim.shows,
            read.len(),
            content.len()
        );
    })
    .await;
}

#[tokio::test]
async fn bytes_that_are_no_text_can_be_read_by_all() {
    with_shims(async |shim| {
        let container = spawned(shim).await;
        let file = json!({"container_id": container, "path": "b", "content": "/wD/AA==", "encoding": "base64"});
        shim.ok("fs_write", file).await;
        let read = shim.ok("fs_read", json!({"container_id": container, "path": "b"})).await;
        read.says("/wD/AA==");
        read.says("base64");
        let cmd = ["printf", r"\377\000"];
        let ran = json!({"container_id": container, "cmd": cmd, "wait_s": 50});
        shim.ok("exec_start", ran).await.says("/wA=");
        let out = json!({"container_id": container, "path": "b", "gzip": false});
        let out = shim.ok("fs_export", out).await;
        let archive = match &out.structured {
            Some(structured) => structured["archive"].as_str().expect("an archive"),
            None => out.shown.lines().last().expect("an archive"),
        };
        let back = json!({"container_id": container, "dest": "back", "archive": archive});
        shim.ok("fs_import", back).await.says("back");
        shim.ok("fs_stat", json!({"container_id": container, "path": "back/b"})).await;
    })
    .await;
}

#[tokio::test]
async fn a_long_listing_has_pages() {
    with_shims(async |shim| {
        let container = spawned(shim).await;
        let script = "for i in $(seq 1 400); do touch $(printf %0200d $i); done";
        let cmd = ["sh", "-c", script];
        let made = json!({"container_id": container, "cmd": cmd, "wait_s": 50});
        shim.ok("exec_start", made).await.says("succeeded");
        let (mut found, mut cursor) = (0, None);
        loop {
            let page = json!({"container_id": container, "limit": 1000, "cursor": cursor});
            let page = shim.ok("fs_list", page).await;
            found += page.shown.matches("/workspace/0").count();
            cursor = page.after("cursor=");
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, 400);
    })
    .await;
}

#[tokio::test]
async fn a_batch_tells_what_was_read_and_what_failed() {
    with_shims(async |shim| {
        let container = spawned(shim).await;
        let long = "0123456789\n".repeat(9000);
        let operations = json!([
            {"op": "write", "path": "long", "content": long},
            {"op": "write", "path": "short", "content": "kept"},
            {"op": "read", "path": "short"},
            {"op": "read", "path": "long"},
        ]);
        let batch = json!({"container_id": container, "operations": operations});
        let done = shim.ok("fs_batch", batch).await;
        done.says("kept");
        let next: u64 = done
            .after("offset=")
            .expect("the rest")
            .parse()
            .expect("a number");
        let rest =
            json!({"container_id": container, "path": "long", "offset": next, "limit": 100_000});
        let rest = shim.ok("fs_read", rest).await.content();
        assert!(long.ends_with(&rest) && rest.len() as u64 == long.len() as u64 - next);

        let operations = json!([
            {"op": "write", "path": "new", "content": "x"},
            {"op": "delete", "path": "missing"},
            {"op": "mkdir", "path": "d"},
        ]);
        let batch = json!({"container_id": container, "operations": operations});
        let failed = shim.refused("not_found", "fs_batch", batch).await;
        failed.says("operation 2");
        failed.says("missing");
        failed.says("undone");
        failed.says("failed");
        let gone = json!({"container_id": container, "path": "new"});
        shim.refused("not_found", "fs_stat", gone).await;
    })
    .await;
}

#[tokio::test]
async fn an_error_says_what_to_do_and_that_helps() {
    with_shims(async |shim| {
        let lost = json!({"container_id": "nobody", "cmd": ["true"]});
        let lost = shim.refused("not_found", "exec_start", lost).await;
        lost.says("list_containers");
        let container = spawned(shim).await;
        shim.ok("list_containers", json!({})).await.says(&container);

        // A conflict carries the etag to continue with.
        let write = |content: &str, etag: Option<&str>| json!({"container_id": container, "path": "a", "content": content, "if_match_etag": etag});
        let old = shim.ok("fs_write", write("1", None)).await.etag("etag");
        shim.ok("fs_write", write("2", None)).await;
        let conflict = shim.refused("conflict", "fs_write", write("3", Some(&old))).await;
        conflict.says("if_match_etag");
        let now = conflict.etag("current_etag");
        shim.ok("fs_write", write("3", Some(&now))).await;

        // A denial names an alternative.
        let root = json!({"container_id": container, "path": "."});
        shim.refused("denied", "fs_delete", root).await.says("itself stays");
        let out = json!({"container_id": container, "path": "no/such/../../../etc/passwd"});
        shim.refused("denied", "fs_read", out).await.says("/workspace");
        let directory = json!({"container_id": container, "path": "."});
        shim.refused("conflict", "fs_read", directory).await.says("fs_list");

        // The error says how to correct the arguments.
        let wrong = json!({"container_id": container, "cmd": "echo hi"});
        let wrong = shim.refused("invalid_argument", "exec_start", wrong).await;
        wrong.says("a list of strings");
        let line = json!({"container_id": container, "cmd": ["echo hi"], "wait_s": 50});
        let line = shim.ok("exec_start", line).await;
        let unescaped = line.shown.replace('\\', "");
        assert!(unescaped.contains(r#"["echo", "hi"]"#), "{}", line.shown);

        // An ended exec accepts no input; its output is still available.
        let ended = json!({"container_id": container, "cmd": ["echo", "hi"], "wait_s": 50});
        let exec = shim.ok("exec_start", ended).await.id("e_");
        let late = json!({"exec_id": exec, "data": "x"});
        let late = shim.refused("conflict", "exec_input", late).await;
        let exec = late.after("exec_poll with exec_id=").expect("the next step");
        shim.ok("exec_poll", json!({"exec_id": exec})).await.says("hi");
        let cancelled = shim.ok("exec_cancel", json!({"exec_id": exec})).await;
        cancelled.says("succeeded");
        cancelled.says("exec_poll");
    })
    .await;
}

#[tokio::test]
async fn a_picture_is_an_image_and_nothing_else() {
    with_shims(async |shim| {
        let container = spawned(shim).await;
        let file = json!({"container_id": container, "path": "a.png", "content": PNG, "encoding": "base64"});
        shim.ok("fs_write", file).await;
        let read = json!({"container_id": container, "path": "a.png"});
        let read = shim.ok("fs_read", read).await;
        assert!(read.has_picture && read.structured.is_none(), "{read:?}");
        assert!(!read.shown.contains("iVBOR"), "{read:?}");
        read.says("etag ");
        let batch = json!({"container_id": container, "operations": [{"op": "read", "path": "a.png"}]});
        let batch = shim.ok("fs_batch", batch).await;
        assert!(!batch.shown.contains("iVBOR"), "{batch:?}");
        batch.says("fs_read");
        // A caller that asks for bytes gets bytes.
        let bytes = json!({"container_id": container, "path": "a.png", "limit": 1000});
        shim.ok("fs_read", bytes).await.says("iVBOR");
        let broken = json!({"container_id": container, "path": "b.png", "content": "iVBORw0KGgoAAAAA", "encoding": "base64"});
        shim.ok("fs_write", broken).await;
        let broken = json!({"container_id": container, "path": "b.png"});
        let broken = shim.ok("fs_read", broken).await;
        assert!(!broken.has_picture);
        broken.says("not shown as a picture");
    })
    .await;
}

/// One red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
