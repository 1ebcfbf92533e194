//! Selection of the paths that are followed, and of those that have series of their own.
//!
//! Owns every bound on paths. A path gets series as long as there is room, then by being busier
//! than the least busy that has some. That happens seldom, so that a monitoring system does not
//! store a new path at every reading. Series that are taken away are not added to another's: a
//! counter never jumps.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Paths that are followed at most, of locks and of queues each.
pub(super) const MOST_PATHS: usize = 65_536;

/// Milliseconds between two attempts to give the series of one path to another.
const REPLACE_EVERY_MS: i64 = 6_000;

/// Milliseconds after which an unused path loses its series.
const UNUSED_MS: i64 = 3_600_000;

/// Changes in about a minute from which a path may take another's series.
const BUSY: u32 = 8;

/// Places in which the activity of paths is kept that nothing is at now.
const REMEMBERED: usize = 4_096;

const MINUTE_MS: i64 = 60_000;

/// Paths that may have series of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Number of paths of locks, and of queues, that have series: the busiest. 0: all are counted
    /// together.
    pub most: usize,
    /// Only paths at or below one of these; empty: any path.
    pub prefixes: Vec<String>,
}

impl Default for Selection {
    /// 100 paths, wherever they are.
    fn default() -> Self {
        Self {
            most: 100,
            prefixes: Vec::new(),
        }
    }
}

impl Selection {
    fn admits(&self, path: &str) -> bool {
        let is_below = |prefix: &String| {
            let rest = path.strip_prefix(prefix.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.most > 0 && (self.prefixes.is_empty() || self.prefixes.iter().any(is_below))
    }
}

/// Recent changes of a path: the count is halved every minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Activity {
    count: u32,
    minute: i64,
}

impl Activity {
    fn at(self, now_ms: i64) -> u32 {
        let minutes = now_ms.div_euclid(MINUTE_MS).saturating_sub(self.minute);
        let halvings = u32::try_from(minutes.max(0)).unwrap_or(u32::MAX);
        self.count.checked_shr(halvings).unwrap_or(0)
    }

    fn note(&mut self, now_ms: i64) {
        let count = self.at(now_ms).saturating_add(1);
        *self = Self {
            count,
            minute: now_ms.div_euclid(MINUTE_MS),
        };
    }
}

/// State of one path.
#[derive(Debug)]
pub(super) struct Entry<B, S> {
    pub(super) body: B,
    /// Its own series; `None`: its changes are counted with those of all others.
    pub(super) series: Option<Box<S>>,
    activity: Activity,
    last_ms: i64,
}

/// Whether something is at a path, so that it has to be followed.
pub(super) trait Live {
    fn is_live(&self) -> bool;

    /// Whether the path may have series of its own.
    fn may_have_series(&self) -> bool;
}

/// The paths that are followed.
#[derive(Debug)]
pub(super) struct Paths<B, S> {
    entries: HashMap<Box<str>, Entry<B, S>>,
    selection: Selection,
    /// The paths that have series of their own.
    chosen: Vec<Box<str>>,
    next_replacement_ms: i64,
    hasher: RandomState,
    remembered: Vec<(u64, Activity)>,
}

impl<B: Live, S: Default> Paths<B, S> {
    pub(super) fn new(selection: Selection) -> Self {
        Self {
            entries: HashMap::new(),
            selection,
            chosen: Vec::new(),
            next_replacement_ms: i64::MIN,
            hasher: RandomState::new(),
            remembered: vec![(0, Activity::default()); REMEMBERED],
        }
    }

    /// The entry of a path that changes, made by `make` if there is none; `None`: there are too
    /// many.
    pub(super) fn change(
        &mut self,
        path: &str,
        now_ms: i64,
        make: impl FnOnce() -> B,
    ) -> Option<&mut Entry<B, S>> {
        let has_series = match self.entries.get_mut(path) {
            Some(entry) => {
                entry.activity.note(now_ms);
                entry.series.is_some()
            }
            None => {
                self.add(path, now_ms, make)?;
                false
            }
        };
        if !has_series && self.selection.admits(path) {
            self.consider(path, now_ms);
        }
        let entry = self.entries.get_mut(path)?;
        entry.last_ms = now_ms;
        Some(entry)
    }

    /// The entry of a path that was there before the first change.
    pub(super) fn restore(
        &mut self,
        path: &str,
        now_ms: i64,
        make: impl FnOnce() -> B,
    ) -> Option<&mut Entry<B, S>> {
        if !self.entries.contains_key(path) {
            self.add(path, now_ms, make)?;
            let has_room = self.chosen.len() < self.selection.most;
            if has_room && self.selection.admits(path) {
                self.choose(path);
            }
        }
        self.entries.get_mut(path)
    }

    fn add(&mut self, path: &str, now_ms: i64, make: impl FnOnce() -> B) -> Option<()> {
        if self.entries.len() >= MOST_PATHS {
            return None;
        }
        let (hash, place) = self.place_of(path);
        let known = self.remembered.get(place).copied();
        let known = known.filter(|(of, _)| *of == hash);
        let mut activity = known.map_or_else(Activity::default, |(_, activity)| activity);
        activity.note(now_ms);
        let entry = Entry {
            body: make(),
            series: None,
            activity,
            last_ms: now_ms,
        };
        self.entries.insert(path.into(), entry);
        Some(())
    }

    fn place_of(&self, path: &str) -> (u64, usize) {
        let hash = self.hasher.hash_one(path);
        // As many places as twelve bits have values.
        (hash, (hash >> 52) as usize)
    }

    /// Gives a path series of its own, if there is room, or if it is twice as busy as the least
    /// busy one that has some.
    fn consider(&mut self, path: &str, now_ms: i64) {
        let Some(entry) = self.entries.get(path) else {
            return;
        };
        if !entry.body.may_have_series() {
            return;
        }
        if self.chosen.len() < self.selection.most {
            self.choose(path);
            return;
        }
        let count = entry.activity.at(now_ms);
        let since = now_ms.saturating_sub(self.next_replacement_ms);
        // A clock that was set back by much does not put it off for as long.
        if count < BUSY || (-REPLACE_EVERY_MS..0).contains(&since) {
            return;
        }
        self.next_replacement_ms = now_ms.saturating_add(REPLACE_EVERY_MS);
        let activity = |chosen: &str| {
            let entry = self.entries.get(chosen);
            entry.map_or(0, |entry| entry.activity.at(now_ms))
        };
        let counts = self.chosen.iter().map(|chosen| activity(chosen));
        let Some((place, least)) = counts.enumerate().min_by_key(|(_, count)| *count) else {
            return;
        };
        if count / 2 > least {
            let former = self.chosen.swap_remove(place);
            self.take_series(&former, now_ms);
            self.choose(path);
        }
    }

    fn choose(&mut self, path: &str) {
        if let Some(entry) = self.entries.get_mut(path) {
            entry.series = Some(Box::default());
            self.chosen.push(path.into());
        }
    }

    fn take_series(&mut self, path: &str, now_ms: i64) {
        if let Some(entry) = self.entries.get_mut(path) {
            entry.series = None;
        }
        self.settle(path, now_ms);
    }

    /// Takes the series of one path away.
    pub(super) fn exclude(&mut self, path: &str, now_ms: i64) {
        self.chosen.retain(|chosen| &**chosen != path);
        self.take_series(path, now_ms);
    }

    pub(super) fn get(&self, path: &str) -> Option<&Entry<B, S>> {
        self.entries.get(path)
    }

    pub(super) fn get_mut(&mut self, path: &str) -> Option<&mut Entry<B, S>> {
        self.entries.get_mut(path)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Entry<B, S>)> {
        let entries = self.entries.iter_mut();
        entries.map(|(path, entry)| (&**path, entry))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Entry<B, S>)> {
        self.entries.iter().map(|(path, entry)| (&**path, entry))
    }

    /// Number of followed paths.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets a path where nothing is, unless it has series. How busy it was is remembered as long
    /// as no busier one needs the place.
    pub(super) fn settle(&mut self, path: &str, now_ms: i64) {
        let Some(entry) = self.entries.get(path) else {
            return;
        };
        if entry.series.is_some() || entry.body.is_live() {
            return;
        }
        let activity = entry.activity;
        let (hash, place) = self.place_of(path);
        self.entries.remove(path);
        let Some((of, known)) = self.remembered.get_mut(place) else {
            return;
        };
        if *of == hash || known.at(now_ms) <= activity.at(now_ms) {
            (*of, *known) = (hash, activity);
        } else {
            known.count = known.at(now_ms).saturating_sub(1);
            known.minute = now_ms.div_euclid(MINUTE_MS);
        }
    }

    /// Takes the series of paths away where nothing is and nothing has happened for an hour.
    pub(super) fn forget_unused(&mut self, now_ms: i64) {
        let is_unused = |path: &str| {
            let entry = self.entries.get(path);
            entry.is_none_or(|entry| {
                !entry.body.is_live() && now_ms.saturating_sub(entry.last_ms) > UNUSED_MS
            })
        };
        let unused: Vec<_> = self
            .chosen
            .iter()
            .filter(|path| is_unused(path))
            .cloned()
            .collect();
        for path in unused {
            self.exclude(&path, now_ms);
        }
    }

    /// Sets every path back to what `reset` makes of it; those without series are forgotten.
    pub(super) fn reset(&mut self, reset: impl Fn(&mut B)) {
        self.entries.retain(|_, entry| entry.series.is_some());
        for entry in self.entries.values_mut() {
            reset(&mut entry.body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something is at the path while this is above zero.
    #[derive(Debug, Default)]
    struct Nodes(u32);

    impl Live for Nodes {
        fn is_live(&self) -> bool {
            self.0 > 0
        }

        fn may_have_series(&self) -> bool {
            true
        }
    }

    type Followed = Paths<Nodes, u32>;

    fn of_two() -> Followed {
        Paths::new(Selection {
            most: 2,
            prefixes: Vec::new(),
        })
    }

    /// Comes and goes at the path.
    fn use_once(paths: &mut Followed, path: &str, now_ms: i64) {
        assert!(paths.change(path, now_ms, Nodes::default).is_some());
        paths.settle(path, now_ms);
    }

    fn chosen(paths: &Followed) -> Vec<&str> {
        let mut chosen: Vec<&str> = paths.chosen.iter().map(|path| &**path).collect();
        chosen.sort_unstable();
        chosen
    }

    #[test]
    fn the_first_paths_have_series_until_a_busier_one_comes() {
        let mut paths = of_two();
        for path in ["/a", "/b", "/c"] {
            use_once(&mut paths, path, 0);
        }
        assert_eq!(chosen(&paths), ["/a", "/b"]);
        for turn in 0..20 {
            use_once(&mut paths, "/a", turn);
        }
        // It is remembered though nothing is at the path between two uses.
        for turn in 0..7 {
            use_once(&mut paths, "/c", turn);
        }
        assert_eq!(chosen(&paths), ["/a", "/c"]);
        for turn in 0..20 {
            use_once(&mut paths, "/b", turn);
        }
        // One in six seconds.
        assert_eq!(chosen(&paths), ["/a", "/c"]);
        for turn in 0..9 {
            use_once(&mut paths, "/b", REPLACE_EVERY_MS + turn);
        }
        assert_eq!(chosen(&paths), ["/a", "/b"]);
    }

    #[test]
    fn a_path_that_nobody_uses_loses_its_series_after_an_hour() {
        let mut paths = of_two();
        use_once(&mut paths, "/a", 0);
        paths.change("/b", 0, || Nodes(1)).unwrap();
        paths.forget_unused(UNUSED_MS);
        assert_eq!(chosen(&paths), ["/a", "/b"]);
        paths.forget_unused(UNUSED_MS + 1);
        assert_eq!((chosen(&paths), paths.len()), (vec!["/b"], 1));
    }

    #[test]
    fn only_paths_below_the_prefixes_have_series() {
        let selection = |most, prefixes: &[&str]| Selection {
            most,
            prefixes: prefixes.iter().map(|prefix| (*prefix).to_owned()).collect(),
        };
        for (selection, path, expected) in [
            (selection(1, &[]), "/a", true),
            (selection(0, &[]), "/a", false),
            (selection(1, &["/a"]), "/a", true),
            (selection(1, &["/a/"]), "/a/b", true),
            (selection(1, &["/a"]), "/ab", false),
            (selection(1, &["/c", "/a"]), "/a/b/c", true),
            (selection(1, &["/"]), "/a", true),
        ] {
            assert_eq!(selection.admits(path), expected, "{selection:?} {path}");
        }
    }

    #[test]
    fn a_hundred_thousand_paths_take_no_more_memory_than_those_that_are_in_use() {
        let mut paths = of_two();
        for number in 0..100_000 {
            use_once(&mut paths, &format!("/jobs/{number}"), number);
        }
        assert!(paths.len() <= 2, "{}", paths.len());
        assert_eq!(paths.remembered.len(), REMEMBERED);
        // Those in use have a bound, too.
        for number in 0..100_000 {
            paths.change(&format!("/held/{number}"), 0, || Nodes(1));
        }
        assert_eq!(paths.len(), MOST_PATHS);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_choice() {
        let mut paths = of_two();
        for path in ["/a", "/b"] {
            use_once(&mut paths, path, 0);
        }
        paths.next_replacement_ms = i64::MAX;
        for _ in 0..9 {
            use_once(&mut paths, "/c", 0);
        }
        assert!(chosen(&paths).contains(&"/c"));
    }
}
