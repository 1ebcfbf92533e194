//! Help pages: the verbs in groups, a verb's own options on its page, the options of every verb and
//! the settings of a server on pages of their own.
//!
//! `-h` fits a terminal of 24 lines; `--help` has every option and the examples; manual pages and
//! completions are made of the command as it is declared, with every paragraph.

use clap::builder::PossibleValue;
use clap::{Args, Command};

use crate::context::Globals;
use crate::run::lease::LeaseArgs;
use crate::settings::SettingFlags;

/// The verbs by what they are for.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Locks and queues",
        &[
            "lock", "sem", "elect", "barrier", "queue", "member", "counter", "agent",
        ],
    ),
    (
        "Who holds, who waits",
        &["console", "top", "deadlocks", "doctor"],
    ),
    ("Servers", &["serve", "server", "dev", "context", "cert"]),
    (
        "Znodes",
        &["ls", "get", "set", "create", "rm", "stat", "watch", "acl"],
    ),
    (
        "Data folders",
        &["backup", "restore", "import", "export", "wal"],
    ),
    ("More", &["completions", "man", "version", "help"]),
];

/// Returns the command with the help pages for people: brief ones for `-h`.
pub(crate) fn arranged(cli: Command, brief: bool) -> Command {
    let list = if brief { names() } else { lines(&cli) };
    let more = "Try:  baton lock /demo -- echo held\n\
                A verb's page: baton help lock    Options of every verb: baton help options";
    let page = |name: &'static str| Command::new(name).hide(true).disable_help_flag(true);
    let pages = [
        Globals::augment_args(page("options")).about("The options of every verb"),
        SettingFlags::augment_args(page("settings")).about("The settings of baton serve"),
        LeaseArgs::augment_args(page("lease")).about("Options of every verb that holds a lease"),
    ];
    cli.mut_args(|arg| match arg.is_global_set() {
        true => arg.hide(true),
        false => arg,
    })
    .mut_subcommands(|verb| arranged_verb(verb, "baton", brief))
    .subcommands(pages.map(compact))
    .override_usage("baton VERB [OPTIONS] [ARGUMENTS]")
    .help_template("{about-with-newline}\n{usage-heading} {usage}{after-help}")
    .after_help(format!("{}\n\n{more}", list.trim_end()))
}

fn arranged_verb(verb: Command, parents: &str, brief: bool) -> Command {
    let name = format!("{parents} {}", verb.get_name());
    let text = verb.get_after_help().map(ToString::to_string);
    let after = match (brief, text) {
        (true, _) => format!("Examples, and the options that are left out: {name} --help"),
        (false, Some(text)) => format!("{text}\n\nOptions of every verb: baton help options"),
        (false, None) => "Options of every verb: baton help options".to_owned(),
    };
    // Where a verb may stand alone, its usage names those below it.
    let hides_verbs = brief && !verb.is_subcommand_required_set();
    let long = verb.get_long_about().map(ToString::to_string);
    let long = long.as_deref().and_then(|text| text.split_once("\n\n"));
    let verb = match long.filter(|_| !brief) {
        Some((_, rest)) => verb.before_help(rest.to_owned()),
        None => verb,
    };
    let verb = verb.mut_args(|arg| {
        let is_left_out = arg.is_hide_long_help_set() || brief && arg.is_hide_short_help_set();
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        match (is_left_out, brief) {
            (true, _) => arg.hide(true),
            (false, true) => arg.help(first_clause(&help).to_owned()),
            (false, false) => arg,
        }
    });
    compact(verb)
        .mut_subcommands(|below| {
            let below = arranged_verb(below, &name, brief);
            if hides_verbs { below.hide(true) } else { below }
        })
        .help_template(
            "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}",
        )
        .disable_help_subcommand(true)
        .after_help(after)
}

/// Returns the command with one paragraph an option, the same for `-h` and `--help`.
fn compact(command: Command) -> Command {
    command.long_about(None).mut_args(|arg| {
        let arg = arg.long_help(None).hide_short_help(false);
        let values = arg.get_possible_values();
        // With a line for each value the page would have three times as many lines.
        if !values.iter().any(|value| value.get_help().is_some()) {
            return arg.hide_long_help(false);
        }
        let names: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        arg.hide_long_help(false)
            .hide_possible_values(true)
            .help(format!("{help} [one of {}]", names.join(", ")))
    })
}

/// The beginning of an option's help that says what it is.
fn first_clause(help: &str) -> &str {
    let ends = [". ", ": ", "; ", " (", " ["];
    let end = ends.iter().filter_map(|end| help.find(end)).min();
    help.get(..end.unwrap_or(help.len())).unwrap_or(help)
}

/// The groups with the names of their verbs.
fn names() -> String {
    let line = |(title, verbs): &(&str, &[&str])| format!("{title:<22}{}\n", verbs.join(" "));
    GROUPS.iter().map(line).collect()
}

/// The groups with a line for each verb.
fn lines(cli: &Command) -> String {
    let mut text = String::new();
    for (title, verbs) in GROUPS {
        text.push_str(&format!("{title}:\n"));
        for name in verbs {
            let about = cli.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or("Print a page of help".to_owned(), ToString::to_string);
            text.push_str(&format!("  {name:<12}{about}\n"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn built(brief: bool) -> Command {
        let mut cli = arranged(Cli::command(), brief).term_width(80);
        cli.build();
        cli
    }

    /// Shows every verb's page to `look`, with the words that ask for it.
    fn each_page(command: &Command, look: &mut impl FnMut(&str, String)) {
        for verb in command
            .get_subcommands()
            .filter(|verb| verb.get_name() != "help")
        {
            let name = verb.get_bin_name().unwrap_or_default().to_owned();
            look(&name, verb.clone().render_help().to_string());
            each_page(verb, look);
        }
    }

    #[test]
    fn brief_pages_fit_a_terminal_and_the_others_have_at_most_500_words() {
        let mut pages = 0;
        each_page(&built(true), &mut |name, page| {
            pages += 1;
            let is_list = ["baton options", "baton settings"].contains(&name);
            let wide = page.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{name}");
            assert!(is_list || page.lines().count() <= 24, "{name} -h:\n{page}");
        });
        assert!(pages > 80, "{pages}");
        each_page(&built(false), &mut |name, page| {
            let words = page.split_whitespace().count();
            let is_list = ["baton options", "baton settings"].contains(&name);
            assert!(is_list || words <= 500, "{name}: {words} words");
        });
        for brief in [true, false] {
            let page = built(brief).render_help().to_string();
            let most = if brief { 24 } else { 60 };
            assert!(page.lines().count() <= most, "{page}");
            assert!(
                page.lines().all(|line| line.chars().count() <= 80),
                "{page}"
            );
        }
    }

    /// Those of every verb have a page of their own.
    #[test]
    fn a_page_has_the_options_of_its_verb_alone() {
        each_page(&built(false), &mut |name, page| {
            let has_shared = page.contains("--connect-timeout");
            assert_eq!(has_shared, name == "baton options", "{name}:\n{page}");
        });
    }

    #[test]
    fn each_verb_stands_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, verbs)| *verbs)
            .copied()
            .collect();
        let cli = Cli::command();
        let shown = cli.get_subcommands().filter(|verb| !verb.is_hide_set());
        let mut declared: Vec<&str> = shown.map(Command::get_name).collect();
        declared.push("help");
        grouped.sort_unstable();
        declared.sort_unstable();
        assert_eq!(grouped, declared);
    }

    #[test]
    fn what_pages_leave_out_is_in_the_command_that_manual_pages_are_made_of() {
        let declared = Cli::command();
        let lock = declared.find_subcommand("lock").expect("a verb");
        let lease = lock.get_arguments().find(|arg| arg.get_id() == "mode");
        let lease = lease.expect("--lease");
        assert!(!lease.is_hide_set() && lease.get_long_help().is_some());
    }
}
