//! Traces of the command and of the server that it starts or uses: exported where `baton` was built
//! with the feature `otel`, and a word about it where it was not.

use crate::common::CommandHome;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

#[cfg(not(feature = "otel"))]
#[test]
fn a_baton_without_the_feature_says_so_and_the_lock_is_held_all_the_same() {
    let home = CommandHome::new();
    let mut lock = home.baton(&["lock", "/a", "--", "echo", "held"]);
    let asked =
        crate::common::Ran::from(lock.env(ENDPOINT, "http://127.0.0.1:1").output().unwrap());
    assert_eq!((asked.code, &*asked.out), (0, "held\n"), "{}", asked.err);
    assert!(
        asked.err.contains("was built without traces"),
        "{}",
        asked.err
    );
    let mut lock = home.baton(&["lock", "/a", "--", "echo", "held"]);
    lock.env(ENDPOINT, "http://127.0.0.1:1");
    let off = crate::common::Ran::from(lock.env("OTEL_SDK_DISABLED", "true").output().unwrap());
    assert_eq!((&*off.out, &*off.err), ("held\n", ""));
}

#[cfg(feature = "otel")]
mod exported {
    use std::net::TcpListener;

    use baton_testkit::{CollectedSpan, Collector, CollectorBehavior};

    use super::{CommandHome, ENDPOINT};
    use crate::common::Ran;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn hex(id: &[u8]) -> String {
        id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A lock on the local server, which exports too.
    #[test]
    fn a_lock_and_its_server_are_one_trace_which_the_command_goes_on_with() {
        let collector = Collector::start(CollectorBehavior::Good).unwrap();
        let home = CommandHome::new();
        let mut lock = home.baton(&["lock", "/jobs/a", "--", "printenv", "TRACEPARENT"]);
        lock.env(ENDPOINT, collector.url())
            .env("TRACEPARENT", PARENT)
            .env("OTEL_BSP_SCHEDULE_DELAY", "50");
        let ran = Ran::from(lock.output().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.err);
        let is_of_server = |span: &CollectedSpan| span.service == "baton-server";
        let spans = collector.wait_for(|spans| {
            spans.iter().any(|span| span.name == "baton lock")
                && spans
                    .iter()
                    .any(|span| is_of_server(span) && span.name == "delete")
        });
        for span in &spans {
            assert_eq!(hex(&span.trace_id), &PARENT[3..35], "{span:?}");
        }
        let verb = spans.iter().find(|span| span.name == "baton lock").unwrap();
        assert_eq!(hex(&verb.parent_id), &PARENT[36..52]);
        assert_eq!(verb.service, "baton");
        let command = format!("00-{}-{}-01\n", &PARENT[3..35], hex(&verb.span_id));
        assert_eq!(ran.out, command);
        for name in ["acquire", "hold", "release"] {
            let mut found = spans.iter().filter(|span| span.name == name);
            assert_eq!(
                found.next().map(|span| &span.parent_id),
                Some(&verb.span_id)
            );
        }
    }

    #[test]
    fn a29_a_collector_that_is_not_there_or_not_understood_changes_nothing() {
        let home = CommandHome::new();
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let dead = format!("http://{}", port.local_addr().unwrap());
        drop(port);
        let held = |variables: &[(&str, &str)], verbose: bool| {
            let words = ["lock", "/a", "-v", "--", "echo", "held"];
            let words: Vec<_> = words
                .into_iter()
                .filter(|word| verbose || *word != "-v")
                .collect();
            let mut lock = home.baton(&words);
            let ran = Ran::from(lock.envs(variables.iter().copied()).output().unwrap());
            assert_eq!((ran.code, &*ran.out), (0, "held\n"), "{}", ran.err);
            ran.err
        };
        let _started = held(&[], false);
        assert_eq!(held(&[(ENDPOINT, &dead)], false), "");
        let said = held(&[(ENDPOINT, &dead)], true);
        assert!(said.contains("spans were lost"), "{said}");
        let said = held(&[(ENDPOINT, "grpc.example:4317")], false);
        assert!(
            said.contains("no traces are exported: OTEL_EXPORTER"),
            "{said}"
        );
        let said = held(
            &[(ENDPOINT, &dead), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
            false,
        );
        assert!(said.contains("http/protobuf"), "{said}");
        // What names no trace begins one.
        assert_eq!(
            held(&[(ENDPOINT, &dead), ("TRACEPARENT", "nonsense")], false),
            ""
        );
    }
}
