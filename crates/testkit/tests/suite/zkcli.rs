//! ZooKeeper's own command line, the same commands to Baton and to Apache ZooKeeper: what it prints
//! must agree, line by line.
//!
//! Times differ and are left out; an event is printed by a thread of its own, so events are
//! compared by themselves, in their order.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use baton_testkit::{ServerOptions, Target, TestServer, zookeeper_classpath, zookeeper_or_skip};

const COMMANDS: &str = "\
whoami
create /a hello
create -s /a/s- x
create -e /a/eph e
create -c /cont c
ls /
ls -s /a
ls -R /
get -s /a
set -s /a world
set -v 7 /a bad
stat -w /a
set /a again
get -w /a
set /a thrice
ls -w /a
create /a/b
addWatch -m PERSISTENT_RECURSIVE /a
create /a/b/c
set /a/b/c x
removewatches /a
removewatches /a
removewatches -d /a
addWatch -m PERSISTENT /cont
set /cont q
create /cont/z q
removewatches -a /cont
stat -w /later
create /later x
delete /a/b
delete -v 3 /cont
deleteall /a/b
getEphemerals
getEphemerals /a
getEphemerals /b
getAllChildrenNumber /
sync /a
sync /nosuch
version
addauth digest bob:pw
create /sec s auth::cdrwa
getAcl -s /sec
setAcl /sec digest:bob:x:r
setAcl -v 7 /a world:anyone:r
setAcl -R -v 0 /cont world:anyone:cdrwa
setAcl /cont ip:127.0.0.1:cdrwa,world:anyone:r
setAcl /cont ip:300.0.0.1:r
setAcl /cont bogus:x:r
getAcl /cont
getAcl /sec
get /sec
set /sec no
create /byip x ip:127.0.0.0/8:cdrwa
get /byip
create /sasl x sasl:foo:cdrwa
create /digest x digest:foo:cdrwa
create /readonly x world:anyone:r
create /readonly/child x
set /readonly x
delete /readonly
create /noread x world:anyone:w
get /noread
ls /noread
getAcl /noread
create /nosuch/x
get /nosuch
get -w /nosuch
delete /nosuch
getAcl /nosuch
create -e /cont/e q
create /cont/e/f q
create -s -e /cont/e- q
create -e -t 5 /ttl x
create -s /nosuch/ x
create /seq x
create -s /seq/ x
create -s /seq/ x
ls /seq
ls /zookeeper
ls /zookeeper/quota
get /zookeeper/config
set /zookeeper/config x
getAcl /zookeeper
getAcl /zookeeper/config
delete /
delete /zookeeper
create /a
create a x
create /a/ x
create //a x
create /a/../b x
deleteall /seq
stat /
stat /zookeeper
stat /zookeeper/quota
get -s /zookeeper/config
config
getAcl /zookeeper/quota
create /q 12345
create /q/1 67
setquota -n 4 /q
listquota /q
get /zookeeper/quota/q/zookeeper_limits
get -s /zookeeper/quota/q/zookeeper_stats
setquota -b 20 /q
setquota -N 5 /q
setquota -B 25 /q
listquota /q
get /zookeeper/quota/q/zookeeper_limits
create /q/2 89
create /q/3 90
create /q/4 over-the-soft-one
set /q/1 over-the-hard-one
create /q/4 a
create /q/5 b
listquota /q
set /q/1 678
delete /q/3
get /zookeeper/quota/q/zookeeper_stats
create -e /q/6 eph
setquota -n 1 /q/1
setquota -n 1 /nosuch
setquota -x 1 /q
listquota /nosuch
listquota /q/1
ls -R /zookeeper/quota
delquota -n /q
listquota /q
delquota -N /q
delquota -b /q
delquota -B /q
listquota /q
delquota /q
listquota /q
delquota /q
get /zookeeper/quota/q/zookeeper_stats
ls -R /zookeeper/quota
setquota -n -1 /q
setquota -N 4 /q
create /q/7 x
delquota /q
deleteall /q
deleteall /a
ls -s /
quit
";

/// Output of the command line.
#[derive(Debug, PartialEq, Eq)]
struct CliOutput {
    answers: Vec<String>,
    events: Vec<String>,
    complaints: Vec<String>,
}

fn ask(server: &TestServer) -> CliOutput {
    let folder = tempfile::tempdir().unwrap();
    let commands = folder.path().join("commands");
    std::fs::write(&commands, COMMANDS).unwrap();
    let java = std::env::var_os("JAVA_HOME")
        .map(|home| PathBuf::from(home).join("bin/java"))
        .filter(|java| java.is_file())
        .unwrap_or_else(|| "java".into());
    let output = Command::new(java)
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
        .args(["-cp", &zookeeper_classpath().unwrap()])
        .args(["org.apache.zookeeper.ZooKeeperMain", "-server"])
        .arg(server.connect_string())
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .stdin(Stdio::from(File::open(&commands).unwrap()))
        .output()
        .unwrap();
    let lines = |bytes: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(bytes)
            .lines()
            .filter(|line| !line.is_empty() && *line != "WATCHER::")
            .filter(|line| !line.starts_with("Connecting to"))
            .filter(|line| !line.starts_with("ctime") && !line.starts_with("mtime"))
            .map(str::to_owned)
            .collect()
    };
    // ZooKeeper's client prints the last event only if its process lives long enough.
    let closed = "WatchedEvent state:Closed type:None path:null";
    let (events, answers) = lines(&output.stdout)
        .into_iter()
        .filter(|line| line != closed)
        .partition(|line| line.starts_with("WatchedEvent"));
    CliOutput {
        answers,
        events,
        complaints: lines(&output.stderr),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn zookeepers_command_line_says_the_same_to_both() {
    if !zookeeper_or_skip() {
        return;
    }
    let baton = TestServer::start(Target::Baton).await.unwrap();
    // Baton always enforces hard quotas, ZooKeeper when a property says so.
    let enforcing = ServerOptions {
        java_args: vec!["-Dzookeeper.enforceQuota=true".to_owned()],
        ..ServerOptions::default()
    };
    let zookeeper = TestServer::start_with(Target::ZooKeeper, enforcing)
        .await
        .unwrap();
    let (ours, theirs) = (ask(&baton), ask(&zookeeper));
    assert_eq!(ours.events, theirs.events);
    assert_eq!(ours.complaints, theirs.complaints);
    assert_eq!(ours.answers, theirs.answers);
    // That there was a conversation, and a quota in its way.
    let refusals = ours.complaints.iter().chain(&ours.answers);
    let refusals = refusals.filter(|line| line.contains("uota has exceeded"));
    assert_eq!(refusals.count(), 4, "{ours:?}");
    assert!(ours.answers.len() > 80, "{ours:?}");
    assert!(ours.events.len() > 10, "{ours:?}");
}
