//! Contexts: which servers, files and credentials a command takes from `config.toml` by a name, and
//! what outweighs it.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::common::{CommandHome, Ran, RunningCommand};

/// A server, and a home with a user's and a machine's file.
struct ServedConfig {
    home: CommandHome,
    _server: RunningCommand,
    address: String,
}

impl ServedConfig {
    fn new() -> Self {
        let home = CommandHome::new();
        let mut server = home.spawn(&["serve", "--ephemeral", "--listen", "127.0.0.1:0"]);
        let line = server.line();
        let address = line.split_whitespace().nth(3).unwrap();
        let address = address.trim_end_matches(';').to_owned();
        for name in ["prod", "test", "shared", "flag", "variable", "file"] {
            let made = home.run(&["create", &format!("/{name}"), "--servers", &address]);
            assert_eq!(made.code, 0, "{made:?}");
            let servers = format!("{address}/{name}");
            let made = home.run(&["create", "/who", name, "--servers", &servers]);
            assert_eq!(made.code, 0, "{made:?}");
        }
        Self {
            home,
            _server: server,
            address,
        }
    }

    fn list(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    fn user_file(&self) -> PathBuf {
        self.home.path(".config/baton/config.toml")
    }

    fn write(&self, file: &PathBuf, text: &str) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text.replace("ADDRESS", &self.address)).unwrap();
    }

    /// Runs a verb that names the servers it uses with these arguments and variables.
    fn who(&self, args: &[&str], variables: &[(&str, &str)]) -> Ran {
        let mut command = self.home.baton(&[&["get", "/who"], args].concat());
        command.envs(variables.iter().copied());
        Ran::from(command.output().unwrap())
    }
}

const BOTH: &str = "current = \"prod\"\nservers = \"ADDRESS/file\"\n\n[context.prod]\nservers = \"ADDRESS/prod\"\n\n\
                    [context.test]\nservers = \"ADDRESS/test\"\n";

#[test]
fn a_flag_outweighs_a_variable_a_variable_the_current_context_and_that_the_rest_of_the_file() {
    let place = ServedConfig::new();
    place.write(&place.user_file(), BOTH);
    let machine = place.home.system("etc/baton/config.toml");
    place.write(
        &machine,
        "[context.shared]\nservers = \"ADDRESS/shared\"\n[context.test]\nservers = \"ADDRESS/file\"\n",
    );
    let (flag, variable) = (place.list("flag"), place.list("variable"));
    let by_variable = [("BATON_SERVERS", variable.as_str())];
    let test = [("BATON_CONTEXT", "test")];
    let both = [by_variable[0], test[0]];
    for (args, variables, who) in [
        (&["--servers", &flag][..], &both[..], "flag"),
        (&["--context", "test"], &by_variable, "test"),
        (&["--context", "shared"], &test, "shared"),
        (&[], &both, "variable"),
        (&[], &test, "test"),
        (&[], &[("BATON_CONTEXT", "")], "prod"),
        (&[], &[], "prod"),
    ] {
        let ran = place.who(args, variables);
        assert_eq!(
            (ran.code, ran.out.trim_end()),
            (0, who),
            "{args:?}: {ran:?}"
        );
    }
    // A folder on the command line is a server of one's own; a variable counts less than a context.
    let own = place.who(&["--data-dir", "data"], &test);
    assert_eq!(own.code, 1, "{own:?}");
    let ran = place.who(&[], &[test[0], ("BATON_DATA_DIR", "data")]);
    assert_eq!((ran.code, ran.out.trim_end()), (0, "test"), "{ran:?}");
    let ran = place.who(&["--context", "prod", "--servers", &flag], &[]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.complaint().contains("give one of them"), "{ran:?}");
    // Another file in place of the user's.
    let other = place.home.path("other.toml");
    place.write(&other, "servers = \"ADDRESS/file\"\n");
    let ran = place.who(&[], &[("BATON_CONFIG", "other.toml")]);
    assert_eq!((ran.code, ran.out.trim_end()), (0, "file"), "{ran:?}");
    let ran = place.who(&[], &[("BATON_CONFIG", "none.toml")]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.complaint().contains("BATON_CONFIG"), "{ran:?}");
}

#[test]
fn a_context_that_nobody_has_is_refused_with_those_that_there_are() {
    let place = ServedConfig::new();
    place.write(
        &place.user_file(),
        &BOTH.replace("\"prod\"\n", "\"gone\"\n"),
    );
    for (args, variables, origin) in [
        (&["--context", "tset"][..], &[][..], "--context: "),
        (
            &[],
            &[("BATON_CONTEXT", "tset")],
            "BATON_CONTEXT in the environment: ",
        ),
        (&[], &[], "config.toml:1 current: no context \"gone\""),
    ] {
        let ran = place.who(args, variables);
        assert_eq!(ran.code, 2, "{ran:?}");
        let said = ran.complaint();
        assert!(
            said.contains(origin) && said.ends_with("; there are prod, test"),
            "{ran:?}"
        );
    }
    let home = CommandHome::new();
    let ran = home.run(&["ls", "--context", "prod"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.complaint().contains("[context.NAME]"), "{ran:?}");
    assert!(!home.state().exists(), "no server was started");
}

#[test]
fn contexts_are_listed_shown_and_chosen() {
    let place = ServedConfig::new();
    let none = place.home.run(&["context", "ls"]);
    assert_eq!((none.code, none.out.as_str()), (1, ""), "{none:?}");
    let file = place.user_file();
    place.write(&file, BOTH);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    let listed = place.home.run(&["context", "ls"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let lines: Vec<&str> = listed.out.lines().collect();
    assert_eq!(lines.len(), 3, "{listed:?}");
    assert!(
        lines[1].starts_with('*') && lines[1].contains("prod"),
        "{lines:?}"
    );
    assert!(
        lines[2].starts_with(' ') && lines[2].contains("test"),
        "{lines:?}"
    );

    let used = place.home.run(&["context", "use", "test"]);
    assert_eq!(
        (used.code, used.out.as_str()),
        (0, "current context: test\n")
    );
    assert_eq!(place.who(&[], &[]).out.trim_end(), "test");
    let text = std::fs::read_to_string(&file).unwrap();
    let expected = BOTH.replace("\"prod\"\n", "\"test\"\n");
    assert_eq!(text, expected.replace("ADDRESS", &place.address));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let folder = std::fs::read_dir(file.parent().unwrap()).unwrap();
    assert_eq!(folder.count(), 1, "nothing is left beside it");

    let shown = place.home.run(&["context", "show", "--json"]);
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(shown["servers"], place.list("test"));
    let origin = shown["origin"].as_str().unwrap();
    assert!(origin.ends_with(":8 context.test.servers"), "{origin}");
    let other = place.home.run(&["context", "show", "prod"]);
    assert!(other.out.contains(&place.list("prod")), "{other:?}");

    let wrong = place.home.run(&["context", "use", "tset"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    let mut outweighed = place.home.baton(&["context", "use", "prod"]);
    outweighed.env("BATON_CONTEXT", "test");
    let outweighed = Ran::from(outweighed.output().unwrap());
    assert!(outweighed.err.contains("BATON_CONTEXT"), "{outweighed:?}");
    assert_eq!(place.home.run(&["context", "use", "--none"]).code, 0);
    assert_eq!(place.who(&[], &[]).out.trim_end(), "file");
}

/// A user who can change what is read must not be able to lead credentials elsewhere.
#[test]
fn a22_credentials_of_a_context_are_for_its_servers_alone() {
    let place = ServedConfig::new();
    let home = &place.home;
    home.write_secret("auth", "digest:me:secret\n");
    let acl = home.run(&[
        "create",
        "/mine",
        "--acl",
        "creator",
        "--servers",
        &place.address,
        "--auth-file",
        "auth",
    ]);
    assert_eq!(acl.code, 0, "{acl:?}");
    let file = place.user_file();
    let auth = home.path("auth");
    let auth = auth.to_str().unwrap();
    let context = |outside: &str, inside: &str| {
        format!("{outside}\nservers = \"ADDRESS\"\n[context.a]\nservers = \"ADDRESS\"\n{inside}\n")
    };
    let key = format!("auth_file = \"{auth}\"");
    // Who may read the znode presents the credentials.
    let reads = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = home.baton(&[&["get", "/mine"], args].concat());
        command.envs(variables.iter().copied());
        Ran::from(command.output().unwrap()).code == 0
    };
    place.write(&file, &context("", &key));
    assert!(reads(&["--context", "a"], &[]));
    assert!(reads(&[], &[("BATON_CONTEXT", "a")]));
    assert!(!reads(&[], &[]), "those of a context, outside of it");
    let servers = ("BATON_SERVERS", place.address.as_str());
    assert!(!reads(&[], &[("BATON_CONTEXT", "a"), servers]));
    assert!(!reads(
        &["--servers", &place.address],
        &[("BATON_CONTEXT", "a")]
    ));
    place.write(&file, &context(&key, ""));
    assert!(reads(&[], &[]));
    assert!(
        !reads(&["--context", "a"], &[]),
        "those of the file, in a context"
    );
    assert!(reads(&["--context", "a", "--auth-file", auth], &[]));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
    let ran = home.run(&["get", "/mine"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.complaint().contains("chmod go-w"), "{ran:?}");
}
