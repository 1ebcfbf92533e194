//! The shape of every four-letter word: what tools that were written for ZooKeeper 3.8 parse, line
//! by line.

use baton_proto::Request;
use baton_server::{CHANGING_WORDS, HARMLESS_WORDS};

use crate::support::{PATIENCE, Wire, start, with_words, word};

/// The answer with every number replaced by N, every hexadecimal one by H, every date by DATE.
fn shape(answer: &str) -> String {
    let mut shape = String::new();
    for line in answer.split_inclusive('\n') {
        let (line, date) = match line.split_once("expire at ") {
            Some((before, _)) => (before, "expire at DATE:\n"),
            None => (line, ""),
        };
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            if let Some(digits) = rest.strip_prefix("0x") {
                shape.push_str("0xH");
                rest = digits.trim_start_matches(|c: char| c.is_ascii_hexdigit());
            } else if first.is_ascii_digit() {
                shape.push('N');
                rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            } else {
                shape.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        shape.push_str(date);
    }
    shape
}

#[tokio::test]
async fn the_words_have_the_lines_of_zookeeper() {
    let server = with_words().start().await.unwrap();
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    wire.create("/a", b"", 1).await.unwrap();
    wire.call(Request::GetData {
        path: "/a",
        watch: true,
    })
    .await
    .unwrap();
    let summary = "Latency min/avg/max: N/N.N/N\nReceived: N\nSent: N\nConnections: N\nOutstanding: N\nZxid: 0xH\n\
                   Mode: standalone\nNode count: N\n";
    let ip = "/N.N.N.N:N";
    for (name, wanted) in [
        ("ruok", "imok".to_owned()),
        ("isro", "rw".to_owned()),
        ("srvr", format!("Zookeeper version: N.N.N-baton-N.N.N, built on N-N-N N:N UTC\n{summary}")),
        (
            "stat",
            format!(
                "Zookeeper version: N.N.N-baton-N.N.N, built on N-N-N N:N UTC\nClients:\n {ip}[N](queued=N,recved=N,sent=N)\n {ip}[N](queued=N,recved=N,sent=N)\n\n{summary}"
            ),
        ),
        (
            "cons",
            format!(
                " {ip}[N](queued=N,recved=N,sent=N,sid=0xH,lop=GETD,est=N,to=N,lcxid=0xH,lzxid=0xH,lresp=N,llat=N,minlat=N,avglat=N,maxlat=N)\n {ip}[N](queued=N,recved=N,sent=N)\n\n"
            ),
        ),
        (
            "conf",
            "clientPort=N\nsecureClientPort=-N\ndataDir=(memory)\ndataDirSize=N\ndataLogDir=(memory)\ndataLogSize=N\ntickTime=N\n\
             maxClientCnxns=N\nminSessionTimeout=N\nmaxSessionTimeout=N\nclientPortListenBacklog=N\nserverId=N\n"
                .to_owned(),
        ),
        (
            "dump",
            format!(
                "SessionTracker dump:\nSession Sets (N)/(N):\nN expire at DATE:\n\t0xH\nephemeral nodes dump:\n\
                 Sessions with Ephemerals (N):\n0xH:\n\t/a\nConnections dump:\nConnections Sets (N)/(N):\nN expire at DATE:\n\
                 \tip: {ip} sessionId: 0xH\nN expire at DATE:\n\tip: {ip} sessionId: 0xH\n"
            ),
        ),
        ("wchs", "N connections watching N paths\nTotal watches:N\n".to_owned()),
        ("wchc", "0xH\n\t/a\n\n".to_owned()),
        ("wchp", "/a\n\t0xH\n\n".to_owned()),
        ("dirs", "datadir_size: N\nlogdir_size: N\n".to_owned()),
        ("hash", String::new()),
        ("gtmk", "N".to_owned()),
        ("srst", "Server stats reset.\n".to_owned()),
        ("crst", "Connection stats reset.\n".to_owned()),
    ] {
        // The connection that asked for the last word may still be closing.
        let alone = async {
            while server.active_connections() > 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, alone).await.unwrap();
        assert_eq!(shape(&word(&to, name).await), wanted, "{name}");
    }
    let envi = word(&to, "envi").await;
    assert!(
        envi.starts_with("Environment:\nzookeeper.version=3."),
        "{envi}"
    );
    let mntr = word(&to, "mntr").await;
    assert!(mntr.starts_with("zk_version\t3."), "{mntr}");
}

#[tokio::test]
async fn a_trace_mask_is_set_by_the_eight_bytes_behind_the_word() {
    let server = with_words().start().await.unwrap();
    let to = server.connect_string();
    assert_eq!(word(&to, "gtmk").await, "306");
    let mut wire = Wire::silent(&to).await;
    wire.send_bytes(b"stmk\0\0\0").await;
    wire.send_bytes(b"\0\0\0\x02\0").await;
    assert_eq!(wire.rest().await, b"512");
    assert_eq!(word(&to, "gtmk").await, "512");
}

/// ZooKeeper's default, and what costs no more with more watches, ephemerals and connections, or is
/// asked by every monitor.
#[tokio::test]
async fn by_default_no_word_changes_something_or_lists_one_by_one() {
    let server = start().await;
    let to = server.connect_string();
    let answered = [
        "ruok", "srvr", "isro", "mntr", "conf", "envi", "wchs", "dirs", "hash", "gtmk",
    ];
    for name in HARMLESS_WORDS.iter().chain(CHANGING_WORDS) {
        let mut wire = Wire::silent(&to).await;
        wire.send_bytes(name.as_bytes()).await;
        if *name == "stmk" {
            wire.send_bytes(&[0; 8]).await;
        }
        let said = String::from_utf8(wire.rest().await).unwrap();
        let refused = format!("{name} is not executed because it is not in the whitelist.\n");
        assert_eq!(said != refused, answered.contains(name), "{name}: {said}");
    }
}
