//! `fs_read`, `fs_write`, `fs_delete`, `fs_stat`, `fs_list`, `fs_batch`, `fs_import`, `fs_export`.

use hotcell_mcp::Options;
use serde_json::{Value, json};

use crate::world::{Client, World, ok, refused, sh, shown, spawn};

/// A client with a container whose alias is `app`.
async fn with_app(world: &World) -> Client {
    let client = world.client().await;
    ok(&client, "spawn", json!({"alias": "app"})).await;
    client
}

/// Arguments for the container `app`.
fn app(arguments: Value) -> Value {
    let mut arguments = arguments;
    arguments["container_id"] = "app".into();
    arguments
}

#[tokio::test]
async fn a_file_is_written_described_read_and_removed() {
    let world = World::new().await;
    let client = with_app(&world).await;
    let file = json!({"path": "src/a.py", "content": "print('ä')\n", "mode": "0755"});
    let written = ok(&client, "fs_write", app(file)).await;
    insta::assert_snapshot!(written.text, @r#"wrote /workspace/src/a.py: 12 bytes, etag ETAG"#);
    insta::assert_snapshot!(shown(&written.structured), @r#"
    {
      "etag": "ETAG",
      "path": "/workspace/src/a.py",
      "size": 12
    }
    "#);
    let stat = ok(&client, "fs_stat", app(json!({"path": "src/a.py"}))).await;
    insta::assert_snapshot!(stat.text, @r#"file      0755         12  /workspace/src/a.py  TIME  etag ETAG"#);
    insta::assert_snapshot!(shown(&stat.structured), @r#"
    {
      "etag": "ETAG",
      "mode": "0755",
      "mtime": "TIME",
      "path": "/workspace/src/a.py",
      "size": 12,
      "type": "file"
    }
    "#);
    let read = ok(
        &client,
        "fs_read",
        app(json!({"path": "/workspace/src/a.py"})),
    )
    .await;
    insta::assert_snapshot!(read.text, @r#"
    print('ä')
    [/workspace/src/a.py: 12 bytes, text/x-python, etag ETAG]
    "#);
    insta::assert_snapshot!(shown(&read.structured), @r#"
    {
      "content": "print('ä')\n",
      "encoding": "utf-8",
      "etag": "ETAG",
      "mime_type": "text/x-python",
      "path": "/workspace/src/a.py",
      "size": 12,
      "truncated": false
    }
    "#);
    let listed = ok(&client, "fs_list", app(json!({"recursive": true}))).await;
    insta::assert_snapshot!(listed.text, @r#"
    directory 0755       4096  /workspace/src  TIME  etag ETAG
    file      0755         12  /workspace/src/a.py  TIME  etag ETAG
    "#);
    let etags = [&written, &stat, &read].map(|said| said.structured["etag"].clone());
    assert_eq!(etags[0], etags[1]);
    assert_eq!(etags[1], etags[2]);
    assert_eq!(listed.structured["entries"][1]["etag"], etags[0]);
    let removed = ok(&client, "fs_delete", app(json!({"path": "src"}))).await;
    insta::assert_snapshot!(shown(&removed.structured), @r#"
    {
      "deleted": true,
      "path": "src"
    }
    "#);
    insta::assert_snapshot!(refused(&client, "fs_read", app(json!({"path": "src/a.py"}))).await, @r#"
    not_found: there is no file src/a.py
    hint: call fs_list to see what there is
    "#);
}

#[tokio::test]
async fn a_changed_file_is_a_conflict_with_its_etag() {
    let world = World::new().await;
    let client = with_app(&world).await;
    let one = ok(
        &client,
        "fs_write",
        app(json!({"path": "a", "content": "1"})),
    )
    .await;
    let two = ok(
        &client,
        "fs_write",
        app(json!({"path": "a", "content": "2"})),
    )
    .await;
    let stale = json!({"path": "a", "content": "3", "if_match_etag": one.structured["etag"]});
    let said = crate::world::call(&client, "fs_write", app(stale)).await;
    insta::assert_snapshot!(said.text, @r#"
    conflict: the file has changed or is gone; current_etag: ETAG
    hint: read it again with fs_read; to change it as it is now, pass its current_etag as if_match_etag
    "#);
    assert_eq!(said.structured["current_etag"], two.structured["etag"]);
    let said = refused(
        &client,
        "fs_write",
        app(json!({"path": "a", "content": "", "if_none_match": "*"})),
    )
    .await;
    insta::assert_snapshot!(said, @r#"
    already_exists: file a exists already
    hint: leave if_none_match out to replace it, or choose another name
    "#);
    let fresh = json!({"path": "a", "if_match_etag": two.structured["etag"]});
    ok(&client, "fs_delete", app(fresh)).await;
    let gone = json!({"path": "a", "content": "4", "if_match_etag": two.structured["etag"]});
    insta::assert_snapshot!(refused(&client, "fs_write", app(gone)).await, @r#"
    conflict: the file has changed or is gone
    hint: call fs_stat to see what is there now, then decide again
    "#);
}

#[tokio::test]
async fn what_is_no_text_is_base64_and_a_picture_is_an_image() {
    let world = World::new().await;
    let client = with_app(&world).await;
    // One red pixel.
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
    let file = json!({"path": "a.png", "content": png, "encoding": "base64"});
    ok(&client, "fs_write", app(file)).await;
    let read = ok(&client, "fs_read", app(json!({"path": "a.png"}))).await;
    insta::assert_snapshot!(read.text, @r#"[/workspace/a.png: image/png of 1x1 pixels, 69 bytes, etag ETAG; to get its bytes, pass a limit]"#);
    let image = read.result.content[1].as_image().unwrap();
    assert_eq!(
        (image.data.as_str(), image.mime_type.as_str()),
        (png, "image/png")
    );
    assert!(read.result.structured_content.is_none());
}

#[tokio::test]
async fn a_long_file_is_read_in_parts_between_characters() {
    let world = World::new().await;
    let client = with_app(&world).await;
    let content = "ä".repeat(40_000);
    ok(
        &client,
        "fs_write",
        app(json!({"path": "long.txt", "content": content})),
    )
    .await;
    let whole = ok(&client, "fs_read", app(json!({"path": "long.txt"}))).await;
    assert_eq!(whole.structured["content"], "ä".repeat(32_768));
    assert_eq!(whole.structured["next_offset"], 65_536);
    assert!(whole.text.contains("read on with offset=65536"));
    let first = ok(
        &client,
        "fs_read",
        app(json!({"path": "long.txt", "limit": 5})),
    )
    .await;
    assert_eq!(
        (&first.structured["content"], &first.structured["truncated"]),
        (&json!("ää"), &json!(true))
    );
    let next = json!({"path": "long.txt", "offset": first.structured["next_offset"], "limit": 4});
    assert_eq!(
        ok(&client, "fs_read", app(next)).await.structured["content"],
        "ää"
    );
}

#[tokio::test]
async fn any_name_can_be_listed_and_a_listing_has_pages() {
    let world = World::new().await;
    let client = with_app(&world).await;
    sh(
        &client,
        "app",
        r#"touch "$(printf 'a\nb')" 'c|d' "$(printf 'e\377')"; ln -s /etc/passwd f"#,
    )
    .await;
    let first = ok(&client, "fs_list", app(json!({"limit": 2}))).await;
    insta::assert_snapshot!(shown(&first.structured["entries"]), @r#"
    [
      {
        "etag": "ETAG",
        "mode": "0644",
        "mtime": "TIME",
        "path": "/workspace/a\nb",
        "size": 0,
        "type": "file"
      },
      {
        "etag": "ETAG",
        "mode": "0644",
        "mtime": "TIME",
        "path": "/workspace/c|d",
        "size": 0,
        "type": "file"
      }
    ]
    "#);
    let next = json!({"cursor": first.structured["next_cursor"]});
    let next = ok(&client, "fs_list", app(next)).await;
    insta::assert_snapshot!(shown(&next.structured), @r#"
    {
      "entries": [
        {
          "etag": "ETAG",
          "mode": "0644",
          "mtime": "TIME",
          "path": "/workspace/e�",
          "size": 0,
          "type": "file",
          "uri": "workspace://app/e%FF"
        },
        {
          "etag": "ETAG",
          "mode": "0777",
          "mtime": "TIME",
          "path": "/workspace/f",
          "size": 11,
          "target": "/etc/passwd",
          "type": "symlink"
        }
      ]
    }
    "#);
}

#[tokio::test]
async fn a_batch_is_all_or_nothing() {
    let world = World::new().await;
    let client = with_app(&world).await;
    let operations = json!([
        {"op": "mkdir", "path": "d"},
        {"op": "write", "path": "d/a", "content": "A"},
        {"op": "copy", "path": "d/a", "dest_path": "d/b"},
        {"op": "move", "path": "d/b", "dest_path": "c"},
        {"op": "read", "path": "c"},
        {"op": "delete", "path": "d"},
    ]);
    let done = ok(&client, "fs_batch", app(json!({"operations": operations}))).await;
    insta::assert_snapshot!(done.text, @r#"
    1 mkdir /workspace/d: ok, etag ETAG
    2 write /workspace/d/a: ok, etag ETAG
    3 copy /workspace/d/b: ok, etag ETAG
    4 move /workspace/c: ok, etag ETAG
    5 read /workspace/c: ok, etag ETAG, utf-8
    A
    6 delete d: ok
    "#);
    assert_eq!(done.structured["results"][4]["content"], "A");
    let operations = json!([
        {"op": "write", "path": "x", "content": "X"},
        {"op": "read", "path": "missing"},
    ]);
    let failed = refused(&client, "fs_batch", app(json!({"operations": operations}))).await;
    insta::assert_snapshot!(failed, @r#"
    not_found: operation 2 (read missing): there is no file missing; nothing was changed
    operation 1: undone
    operation 2: failed
    hint: call fs_list to see what there is; then send the corrected batch again
    "#);
    let gone = refused(&client, "fs_stat", app(json!({"path": "x"}))).await;
    assert!(gone.starts_with("not_found: "), "{gone}");
    let loose = ok(
        &client,
        "fs_batch",
        app(json!({"operations": operations, "atomic": false})),
    )
    .await;
    insta::assert_snapshot!(loose.text, @r#"
    1 write /workspace/x: ok, etag ETAG
    2 read missing: failed: not_found: there is no file missing (hint: call fs_list to see what there is)
    "#);
    let senseless = [
        json!([{"op": "move", "path": "x"}]),
        json!([{"op": "read", "path": "x", "content": "y"}]),
        json!([{"op": "chmod", "path": "x"}]),
    ];
    for operations in senseless {
        let said = refused(&client, "fs_batch", app(json!({"operations": operations}))).await;
        let names_it = said.contains("operation 1") || said.contains("operations[0]");
        assert!(said.starts_with("invalid_argument: ") && names_it, "{said}");
    }
}

#[tokio::test]
async fn a_tree_goes_out_and_comes_in_as_a_tar() {
    let world = World::new().await;
    let client = with_app(&world).await;
    sh(
        &client,
        "app",
        "mkdir -p p/q; echo one > p/1; echo two > p/q/2; echo no > p/skip.log",
    )
    .await;
    for gzip in [true, false] {
        let request = json!({"path": "p", "exclude": ["**/*.log"], "gzip": gzip});
        let out = ok(&client, "fs_export", app(request)).await;
        let dest = format!("in-{gzip}");
        let archive = json!({"dest": dest, "archive": out.structured["archive"]});
        let came = ok(&client, "fs_import", app(archive)).await;
        assert!(
            came.structured["entries"].as_u64().unwrap() >= 2,
            "{}",
            came.text
        );
        let files = sh(
            &client,
            "app",
            &format!("cd {dest}; find . -type f | sort; cat $(find . -name 2)"),
        )
        .await;
        assert!(
            files.text.contains("two") && !files.text.contains("skip.log"),
            "{}",
            files.text
        );
    }
}

#[tokio::test]
async fn what_is_too_large_to_show_has_a_url_or_a_hint() {
    let world = World::new().await;
    let client = with_app(&world).await;
    sh(&client, "app", "head -c 6000000 /dev/urandom > big").await;
    insta::assert_snapshot!(refused(&client, "fs_export", app(json!({"path": "big"}))).await, @r#"
    resource_exhausted: the archive has more than 4194304 bytes, the most that fits into an answer
    hint: pack it inside, such as exec_start cmd=["tar","czf","export.tgz","DIR"], then fs_read export.tgz with limit=4194304 and go on with offset=next_offset
    "#);
    insta::assert_snapshot!(refused(&client, "fs_import", app(json!({"dest": "x"}))).await, @r#"
    resource_exhausted: an archive given here may have 4194304 bytes
    hint: write it in parts of at most 4 MiB with fs_write path=import.tgz encoding=base64 append=true, then unpack it inside, such as exec_start cmd=["tar","xf","import.tgz","-C","DIR"]
    "#);
    let options = Options {
        public_url: Some("http://127.0.0.1:8000/".to_owned()),
        ..Options::default()
    };
    let client = world.client_with(options, false).await;
    let out = ok(
        &client,
        "fs_export",
        app(json!({"path": "big", "exclude": ["a&b"]})),
    )
    .await;
    insta::assert_snapshot!(out.text, @r#"
    too large to show here; GET http://127.0.0.1:8000/v1/containers/app/archive?path=big&exclude=a%26b&gzip=true
    without HTTP: pack it inside, such as exec_start cmd=["tar","czf","export.tgz","DIR"], then fs_read export.tgz with limit=4194304 and go on with offset=next_offset
    "#);
    let came = ok(&client, "fs_import", app(json!({"dest": "x/ä"}))).await;
    insta::assert_snapshot!(came.text, @r#"
    PUT the tar or tar.gz to http://127.0.0.1:8000/v1/containers/app/archive?path=x%2F%C3%A4
    without HTTP: write it in parts of at most 4 MiB with fs_write path=import.tgz encoding=base64 append=true, then unpack it inside, such as exec_start cmd=["tar","xf","import.tgz","-C","DIR"]
    "#);
    let read = ok(&client, "fs_read", app(json!({"path": "big", "limit": 10}))).await;
    insta::assert_snapshot!(read.structured["url"].as_str().unwrap(), @r#"http://127.0.0.1:8000/v1/containers/app/files/big"#);
}

#[tokio::test]
async fn what_is_not_allowed_says_why() {
    let world = World::new().await;
    let client = with_app(&world).await;
    sh(&client, "app", "ln -s /etc etc; mkdir d").await;
    let said = [
        refused(&client, "fs_read", app(json!({"path": "../../etc/passwd"}))).await,
        refused(&client, "fs_read", app(json!({"path": "etc/passwd"}))).await,
        refused(&client, "fs_read", app(json!({"path": "/workspace2/a"}))).await,
        refused(&client, "fs_read", app(json!({"path": "d"}))).await,
        refused(&client, "fs_read", app(json!({"path": ""}))).await,
        refused(&client, "fs_read", app(json!({"path": "a\u{0}b"}))).await,
        refused(
            &client,
            "fs_write",
            app(json!({"path": "d", "content": ""})),
        )
        .await,
        refused(
            &client,
            "fs_write",
            app(json!({"path": "a", "content": "?", "encoding": "base64"})),
        )
        .await,
        refused(
            &client,
            "fs_write",
            app(json!({"path": "a", "content": "", "mode": "rwx"})),
        )
        .await,
        refused(&client, "fs_delete", app(json!({"path": "."}))).await,
        refused(&client, "fs_delete", app(json!({"path": "nothing"}))).await,
        refused(&client, "fs_list", app(json!({"path": "nothing"}))).await,
        refused(&client, "fs_list", app(json!({"cursor": "?"}))).await,
        refused(&client, "fs_list", app(json!({"limit": 1001}))).await,
        refused(&client, "fs_import", app(json!({"archive": "bm8gdGFy"}))).await,
        refused(
            &client,
            "fs_import",
            app(json!({"archive": "H4sIAAAAAAAA"})),
        )
        .await,
        refused(&client, "fs_export", app(json!({"path": "nothing"}))).await,
    ];
    insta::assert_snapshot!(said.join("\n"), @r#"
    denied: the path leads out of the root
    hint: paths must stay below /workspace, also through symlinks
    denied: could not open the file: the path leads out of the root
    hint: paths must stay below /workspace, also through symlinks
    denied: the path is outside the root
    hint: paths must stay below /workspace, also through symlinks
    conflict: it is a directory
    hint: call fs_list to see what is in it
    invalid_argument: a path must have 1 to 4095 bytes and no NUL; `.` is the workspace itself
    hint: correct the argument and call again
    invalid_argument: a path must have 1 to 4095 bytes and no NUL; `.` is the workspace itself
    hint: correct the argument and call again
    conflict: only regular files can be written
    hint: call fs_stat to see what is there now, then decide again
    invalid_argument: `content`: not base64: Invalid symbol 63, offset 0.
    hint: correct the argument and call again
    invalid_argument: `mode`: octal permission bits, such as "0755"
    hint: correct the argument and call again
    denied: the root is protected
    hint: /workspace itself stays; name something in it: fs_list shows what there is
    not_found: there is no file nothing
    hint: call fs_list to see what there is
    not_found: there is no file nothing
    hint: call fs_list to see what there is
    invalid_argument: `cursor`: not one of ours
    hint: pass next_cursor of the last page as it was, or nothing
    invalid_argument: `limit` must be a whole number from 1 to 1000, not 1001
    hint: limit: Entries of a page
    invalid_argument: the archive was refused: it is malformed or cut off
    hint: correct the argument and call again
    invalid_argument: `archive`: broken gzip: unexpected end of file
    hint: correct the argument and call again
    not_found: there is no file nothing
    hint: call fs_list to see what there is
    "#);
    let stranger = spawn(&client).await;
    let list = ok(&client, "fs_list", json!({"container_id": stranger})).await;
    assert_eq!(list.text, "nothing there");
}
