//! An OpenTelemetry collector: receives traces over HTTP and decodes them by a description of the
//! standard's messages (`proto/traces.proto`), not with the code that encoded them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage, Value};

const REQUEST: &str = "otlp.ExportTraceServiceRequest";
const FILE: &str = "traces.proto";

/// The longest request.
const BODY_BYTES_MAX: usize = 16 << 20;

/// A collector that listens until this process ends.
#[derive(Clone)]
pub struct Collector {
    /// Its base address.
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    request: MessageDescriptor,
    spans: Mutex<Vec<ReceivedSpan>>,
    requests: AtomicUsize,
    status: AtomicU16,
    answer: Mutex<Vec<u8>>,
    authorization: Mutex<Option<String>>,
}

/// A span as it arrived. Ids are hexadecimal.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "as the standard names them")]
pub struct ReceivedSpan {
    pub resource: BTreeMap<String, String>,
    pub trace_id: String,
    pub span_id: String,
    pub parent_span_id: String,
    pub name: String,
    pub kind: i32,
    pub start_unix_ns: u64,
    pub end_unix_ns: u64,
    pub attributes: BTreeMap<String, String>,
    pub status: i32,
    pub flags: u32,
}

impl Collector {
    /// Starts listening.
    pub fn start() -> Self {
        let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
        let files = protox::compile([FILE], [protos]).expect("the file is right");
        let pool = DescriptorPool::from_file_descriptor_set(files).expect("it is complete");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let shared = Arc::new(Shared {
            request: pool.get_message_by_name(REQUEST).expect("it is there"),
            spans: Mutex::default(),
            requests: AtomicUsize::default(),
            status: AtomicU16::new(200),
            answer: Mutex::default(),
            authorization: Mutex::default(),
        });
        let this = Self {
            url: format!("http://{address}"),
            shared: Arc::clone(&shared),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || while shared.serve(&stream).is_some() {});
            }
        });
        this
    }

    /// The spans that were accepted so far.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        let spans = self.shared.spans.lock();
        spans.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of requests so far.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// The `Authorization` of the last request, in lower case.
    pub fn authorization(&self) -> Option<String> {
        let authorization = self.shared.authorization.lock();
        authorization.expect("nobody panics with it").clone()
    }

    /// Sets the response to later requests. Only with status 200 are spans accepted.
    pub fn answers(&self, status: u16, body: &[u8]) {
        self.shared.status.store(status, Ordering::SeqCst);
        let mut answer = self.shared.answer.lock();
        let answer = answer.as_mut().expect("nobody panics with it");
        body.clone_into(answer);
    }
}

impl Shared {
    /// Answers one request; `None` at the end of the connection.
    fn serve(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let (mut line, mut head) = (String::new(), Vec::new());
        loop {
            line.clear();
            reader
                .read_line(&mut line)
                .ok()
                .filter(|count| *count > 0)?;
            match line.trim_end() {
                "" => break,
                text => head.push(text.to_ascii_lowercase()),
            }
        }
        let header = |name: &str| head.iter().find_map(|line| line.strip_prefix(name));
        let length: usize = header("content-length: ")?.parse().ok()?;
        assert!(length <= BODY_BYTES_MAX, "a huge request");
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        assert_eq!(head[0], "post /v1/traces http/1.1");
        assert_eq!(header("content-type: "), Some("application/x-protobuf"));
        let status = self.status.load(Ordering::SeqCst);
        if status == 200 {
            let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
            spans.extend(self.decode(&body));
        }
        let authorization = header("authorization: ").map(str::to_owned);
        *self.authorization.lock().ok()? = authorization;
        self.requests.fetch_add(1, Ordering::SeqCst);
        let answer = self
            .answer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        let mut out = head.into_bytes();
        out.extend(answer);
        let mut stream = stream;
        stream.write_all(&out).ok()
    }

    fn decode(&self, body: &[u8]) -> Vec<ReceivedSpan> {
        let request = DynamicMessage::decode(self.request.clone(), body);
        let request = request.expect("it is what the standard says");
        assert_known(&request);
        let mut spans = Vec::new();
        for group in messages(&request, "resource_spans") {
            let resource = message(&group, "resource");
            let resource = resource
                .map(|resource| attributes(&resource))
                .unwrap_or_default();
            for scope in messages(&group, "scope_spans") {
                let found = messages(&scope, "spans").into_iter();
                spans.extend(found.map(|span| received(&resource, &span)));
            }
        }
        spans
    }
}

/// Fails on unknown fields: a field that the standard does not have would be lost silently.
fn assert_known(message: &DynamicMessage) {
    assert_eq!(message.unknown_fields().count(), 0, "unknown fields");
    for (_, value) in message.fields() {
        let list = value.as_list().unwrap_or_default();
        let inner = value.as_message().into_iter();
        let inner = inner.chain(list.iter().filter_map(Value::as_message));
        inner.for_each(assert_known);
    }
}

fn received(resource: &BTreeMap<String, String>, span: &DynamicMessage) -> ReceivedSpan {
    let status = message(span, "status");
    ReceivedSpan {
        resource: resource.clone(),
        trace_id: hex(span, "trace_id"),
        span_id: hex(span, "span_id"),
        parent_span_id: hex(span, "parent_span_id"),
        name: text(span, "name"),
        kind: number(span, "kind"),
        start_unix_ns: unsigned(span, "start_time_unix_nano"),
        end_unix_ns: unsigned(span, "end_time_unix_nano"),
        attributes: attributes(span),
        status: status.map_or(0, |status| number(&status, "code")),
        flags: u32::try_from(unsigned(span, "flags")).expect("32 bits"),
    }
}

fn field(message: &DynamicMessage, name: &str) -> Value {
    let found = message.get_field_by_name(name);
    found.unwrap_or_else(|| panic!("no {name}")).into_owned()
}

fn messages(message: &DynamicMessage, name: &str) -> Vec<DynamicMessage> {
    let all = field(message, name);
    let all = all.as_list().expect("a list").iter();
    all.map(|one| one.as_message().expect("a message").clone())
        .collect()
}

fn message(message: &DynamicMessage, name: &str) -> Option<DynamicMessage> {
    let found = message
        .descriptor()
        .get_field_by_name(name)
        .expect("a field");
    let is_set = message.has_field(&found);
    is_set.then(|| {
        field(message, name)
            .as_message()
            .expect("a message")
            .clone()
    })
}

fn text(message: &DynamicMessage, name: &str) -> String {
    field(message, name).as_str().expect("a string").to_owned()
}

fn number(message: &DynamicMessage, name: &str) -> i32 {
    let value = field(message, name);
    value.as_enum_number().expect("an enum")
}

fn unsigned(message: &DynamicMessage, name: &str) -> u64 {
    let value = field(message, name);
    let number = value.as_u64().or_else(|| value.as_u32().map(u64::from));
    number.expect("a number")
}

fn hex(message: &DynamicMessage, name: &str) -> String {
    let value = field(message, name);
    let bytes = value.as_bytes().expect("bytes").iter();
    bytes.fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn attributes(of: &DynamicMessage) -> BTreeMap<String, String> {
    let pair = |pair: DynamicMessage| {
        let value = message(&pair, "value").expect("a value");
        (text(&pair, "key"), text(&value, "string_value"))
    };
    messages(of, "attributes").into_iter().map(pair).collect()
}
