//! The words of a story: requests as a person would say them. Turns them into requests; sends
//! nothing.

use baton_proto::{Acl, AuthPacket, Create, CreateOp, MultiOp, Perms, Request};

/// The requests of one line, which are sent in one write: a semicolon and a space stand between
/// them.
pub(crate) fn requests(text: &str) -> Vec<Request<'_>> {
    text.split("; ")
        .map(|words| request(words.trim()))
        .collect()
}

fn request(text: &str) -> Request<'_> {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    if verb == "multi" {
        return Request::Multi(
            rest.split('|')
                .map(|part| part_of_multi(part.trim()))
                .collect(),
        );
    }
    let words: Vec<&str> = rest.split_whitespace().collect();
    let path = words.first().copied().unwrap_or("/");
    let watch = words.contains(&"watch");
    match verb {
        "create" => Request::Create(create(&words, CreateOp::Create2)),
        "delete" => Request::Delete {
            path,
            version: version(&words),
        },
        "set" => Request::SetData {
            path,
            data: words.get(1).map(|data| data.as_bytes()),
            version: version(&words),
        },
        "get" => Request::GetData { path, watch },
        "exists" => Request::Exists { path, watch },
        "ls" => Request::GetChildren { path, watch },
        "whoami" => Request::WhoAmI,
        "ephemerals" => Request::GetEphemerals { prefix: "/" },
        "close" => Request::CloseSession,
        "add-watch" => Request::AddWatch {
            path,
            mode: i32::from(words.contains(&"recursive")),
        },
        "set-watches" => set_watches(&words),
        "auth" => Request::Auth(AuthPacket {
            kind: 0,
            scheme: path,
            auth: Some(words[1].as_bytes()),
        }),
        other => panic!("a story knows no {other:?}"),
    }
}

fn part_of_multi(text: &str) -> MultiOp<'_> {
    let words: Vec<&str> = text.split_whitespace().skip(1).collect();
    match request_verb(text) {
        "create" => MultiOp::Create(create(&words, CreateOp::Create)),
        "delete" => MultiOp::Delete {
            path: words[0],
            version: version(&words),
        },
        "set" => MultiOp::SetData {
            path: words[0],
            data: words.get(1).map(|data| data.as_bytes()),
            version: version(&words),
        },
        "check" => MultiOp::Check {
            path: words[0],
            version: version(&words),
        },
        other => panic!("a story's multi knows no {other:?}"),
    }
}

fn request_verb(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// `create PATH [DATA] [-e] [-s] [for-me]`.
fn create<'a>(words: &[&'a str], op: CreateOp) -> Create<'a> {
    let (ephemeral, sequential) = (words.contains(&"-e"), words.contains(&"-s"));
    let acl = if words.contains(&"for-me") {
        Acl::creator_all()
    } else if words.contains(&"read-only") {
        Acl::new(Perms::READ, "world", "anyone")
    } else {
        Acl::open_unsafe()
    };
    let data = words
        .get(1)
        .filter(|word| !word.starts_with('-') && !["for-me", "read-only"].contains(word));
    Create {
        op,
        path: words[0],
        data: data.map(|data| data.as_bytes()),
        acl: Some(vec![acl]),
        flags: i32::from(ephemeral) + 2 * i32::from(sequential),
        ttl_ms: -1,
    }
}

/// `set-watches ZXID data=PATH exist=PATH child=PATH`.
fn set_watches<'a>(words: &[&'a str]) -> Request<'a> {
    let of = |kind: &str| {
        words
            .iter()
            .filter_map(|word| word.strip_prefix(kind))
            .collect::<Vec<&'a str>>()
    };
    Request::SetWatches {
        relative_zxid: words[0].parse().unwrap(),
        data: of("data="),
        exist: of("exist="),
        child: of("child="),
    }
}

/// `v3`; any if none is named.
fn version(words: &[&str]) -> i32 {
    words
        .iter()
        .skip(1)
        .find_map(|word| word.strip_prefix('v')?.parse().ok())
        .unwrap_or(-1)
}
