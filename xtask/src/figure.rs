//! Figures of the book. Each is kept as `docs/benchmarks/NAME.jsonl`, a line for each series, and
//! drawn as `NAME.svg` beside it. A new series replaces the one of its name and leaves the others,
//! so that runs of different days make one figure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use plotters::prelude::*;
use serde_json::{Value, json};

use crate::{Result, root};

/// Figure of the book. Both axes are logarithmic, unless it is one of bars.
struct Figure {
    name: &'static str,
    title: &'static str,
    /// Empty for a figure of bars: one for each series.
    x: &'static str,
    y: &'static str,
}

const fn figure(
    name: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
) -> Figure {
    Figure { name, title, x, y }
}

const SHARE: &str = "1 / (1 − share): 2 is the median, 100 the 99th percentile";
const COST: &str = "µs of processor time of the server for an operation";
const FIGURES: [Figure; 11] = [
    figure(
        "throughput",
        "Throughput: connections with 32 requests in flight each",
        "connections",
        "operations a second",
    ),
    figure("latency", "Latency", SHARE, "µs"),
    figure("cost-tree", "Cost beside other znodes", "znodes", COST),
    figure(
        "cost-children",
        "Cost of create and delete below a node with many children",
        "children of the node",
        COST,
    ),
    figure(
        "cost-sessions",
        "Cost beside idle sessions",
        "idle sessions, each with a connection",
        COST,
    ),
    figure(
        "cost-watches",
        "Cost beside watches on other znodes",
        "watches of 100 connections",
        COST,
    ),
    figure(
        "memory-sessions",
        "Memory of an idle session with its connection",
        "sessions",
        "bytes for each",
    ),
    figure(
        "memory-watches",
        "Memory of a watch",
        "watches of 100 connections on the same paths",
        "bytes for each",
    ),
    figure(
        "fail-over",
        "Longest time without an acknowledged write after a fault",
        SHARE,
        "ms",
    ),
    figure(
        "locks",
        "Uncontended lock and unlock, each awaited, one client",
        "",
        "locks a second",
    ),
    figure(
        "hand-offs",
        "Hand-offs of one lock between eight clients",
        "",
        "hand-offs a second",
    ),
];

/// Points of a series, with its name.
pub(crate) type Series = (String, Vec<(f64, f64)>);

/// Series as it is kept.
#[derive(Debug, PartialEq)]
struct MeasuredSeries {
    points: Vec<(f64, f64)>,
    /// Command, commit, machine and limits of the run; two lines.
    run: String,
}

const SIZE: (u32, u32) = (880, 520);
/// Height of a line that says where a series is from.
const NOTE: u32 = 15;
const FONT: &str = "sans-serif";
/// Replaced by the colours of a light or a dark page.
const INK: RGBColor = RGBColor(1, 2, 3);
const PAGE: RGBColor = RGBColor(4, 5, 6);
const STYLE: &str = "<style>svg{color:#24292f}.page{fill:#fff}@media(prefers-color-scheme:dark)\
{svg{color:#d0d7de}.page{fill:#161b22}}</style>";
/// Readable on both pages.
const COLORS: [RGBColor; 7] = [
    RGBColor(59, 130, 246),
    RGBColor(22, 163, 74),
    RGBColor(217, 119, 6),
    RGBColor(220, 60, 60),
    RGBColor(168, 85, 247),
    RGBColor(20, 160, 170),
    RGBColor(130, 130, 130),
];

fn file(name: &str, extension: &str) -> PathBuf {
    root()
        .join("docs/benchmarks")
        .join(name)
        .with_extension(extension)
}

/// Keeps these series of a figure, measured in `run`, and draws it.
pub(crate) fn save(name: &str, series: Vec<Series>, run: &str) -> Result<()> {
    let figure = FIGURES.iter().find(|figure| figure.name == name);
    let figure = figure.ok_or_else(|| format!("no figure {name}"))?;
    let path = file(name, "jsonl");
    let mut all = kept(&path)?;
    for (name, points) in series {
        let run = run.to_owned();
        all.insert(name, MeasuredSeries { points, run });
    }
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    fs::write(&path, lines(&all))?;
    eprintln!("{}", path.display());
    Ok(fs::write(file(name, "svg"), draw(figure, &all)?)?)
}

/// Draws all figures, those without a series as such.
pub(crate) fn draw_all() -> Result<()> {
    fs::create_dir_all(root().join("docs/benchmarks"))?;
    for figure in &FIGURES {
        let series = kept(&file(figure.name, "jsonl"))?;
        fs::write(file(figure.name, "svg"), draw(figure, &series)?)?;
    }
    Ok(())
}

/// The points of a distribution: each value and 1 / (1 − its share).
pub(crate) fn distribution(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let share = |(rank, value): (usize, f64)| (count / (count - rank as f64), value);
    values.into_iter().enumerate().map(share).collect()
}

/// The series of a file; none where there is no file.
fn kept(path: &Path) -> Result<BTreeMap<String, MeasuredSeries>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    Ok(parse(&text).map_err(|error| format!("{}: {error}", path.display()))?)
}

fn lines(series: &BTreeMap<String, MeasuredSeries>) -> String {
    let line = |(name, it): (&String, &MeasuredSeries)| {
        let value = json!({"series": name, "points": it.points, "run": it.run});
        format!("{value}\n")
    };
    series.iter().map(line).collect()
}

fn parse(text: &str) -> Result<BTreeMap<String, MeasuredSeries>> {
    let line = |line: &str| -> Result<(String, MeasuredSeries)> {
        let value: Value = serde_json::from_str(line)?;
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let points = value["points"].as_array().into_iter().flatten();
        let points = points.map(|point| Some((point[0].as_f64()?, point[1].as_f64()?)));
        let (Some(name), Some(points), Some(run)) = (text("series"), points.collect(), text("run"))
        else {
            return Err(format!("no series, points or run in {line}").into());
        };
        Ok((name, MeasuredSeries { points, run }))
    };
    text.lines().map(line).collect()
}

/// A number on an axis: 1000000 as 1M.
fn short(value: f64) -> String {
    match value.abs() {
        it if it >= 1e6 => format!("{}M", round(value / 1e6)),
        it if it >= 1e3 => format!("{}k", round(value / 1e3)),
        _ => round(value).to_string(),
    }
}

fn round(value: f64) -> f64 {
    let scale = 10f64.powf((2.0 - value.abs().max(1e-9).log10()).ceil());
    (value * scale).round() / scale
}

/// The whole drawing, in SVG.
fn draw(figure: &Figure, series: &BTreeMap<String, MeasuredSeries>) -> Result<String> {
    let mut notes = BTreeMap::<&str, Vec<&str>>::new();
    for (name, it) in series {
        notes.entry(&it.run).or_default().push(name);
    }
    let mut lines = Vec::new();
    if series.is_empty() {
        lines.push(format!("{}: not measured yet", figure.title));
    }
    for (run, names) in &notes {
        if notes.len() > 1 {
            lines.push(names.join(", ") + ":");
        }
        lines.extend(run.lines().map(str::to_owned));
    }
    let mut svg = String::new();
    {
        let room = if series.is_empty() { NOTE } else { SIZE.1 };
        let height = room + NOTE * (lines.len() as u32 + 1);
        let all = SVGBackend::with_string(&mut svg, (SIZE.0, height)).into_drawing_area();
        all.fill(&PAGE)?;
        let (above, below) = all.split_vertically(room);
        match figure.x {
            _ if series.is_empty() => {}
            "" => bars(&above, figure, series)?,
            _ => curves(&above, figure, series)?,
        }
        let small = (FONT, 11).into_font().color(&INK.mix(0.75));
        for (at, line) in (0i32..).zip(&lines) {
            below.draw_text(line, &small, (16, at * NOTE as i32))?;
        }
        all.present()?;
    }
    let color = |color: RGBColor| format!("\"#{:02X}{:02X}{:02X}\"", color.0, color.1, color.2);
    let svg = svg
        .replace(&color(INK), "\"currentColor\"")
        .replace(&format!("fill={}", color(PAGE)), "class=\"page\"");
    let (head, body) = svg.split_once(">\n").ok_or("a drawing without a head")?;
    let mut text = format!("{head}>\n{STYLE}\n");
    write!(text, "<title>{}</title>\n{body}", figure.title)?;
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn curves(
    area: &Area<'_>,
    figure: &Figure,
    series: &BTreeMap<String, MeasuredSeries>,
) -> Result<()> {
    // A logarithm has no zero: what was measured beside none stands at one.
    let points = |it: &MeasuredSeries| -> Vec<(f64, f64)> {
        let points = it.points.iter();
        points.map(|(x, y)| (x.max(1.0), y.max(1e-3))).collect()
    };
    let all: Vec<(f64, f64)> = series.values().flat_map(points).collect();
    // `room` is the share of the axis above the largest value, where the legend stands.
    let range = |of: fn(&(f64, f64)) -> f64, room: f64| {
        let least = all.iter().map(of).fold(f64::MAX, f64::min);
        let most = all.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
        // Two powers of ten are within, or the axis has no numbers.
        let decade = 10f64.powf(least.log10().floor());
        let is_narrow = most < decade * 10.0;
        let least = if is_narrow { decade } else { least } / 1.3;
        let most = if is_narrow { decade * 10.0 } else { most } * 1.3;
        least..most * (most / least).powf(room)
    };
    let mut chart = ChartBuilder::on(area)
        .caption(figure.title, (FONT, 18).into_font().color(&INK))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(62)
        .build_cartesian_2d(
            range(|point| point.0, 0.0).log_scale(),
            range(|point| point.1, 0.3).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc(figure.x)
        .y_desc(figure.y)
        .label_style((FONT, 12).into_font().color(&INK))
        .axis_style(INK.mix(0.5))
        .bold_line_style(INK.mix(0.15))
        .light_line_style(INK.mix(0.05))
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    for ((name, it), color) in series.iter().zip(COLORS.iter().cycle()) {
        let line = LineSeries::new(points(it), color.stroke_width(2));
        // The dots of a distribution would hide its line.
        let size = if it.points.len() > 20 { 0 } else { 3 };
        chart
            .draw_series(line.point_size(size))?
            .label(name)
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(3)));
    }
    legend(&mut chart)
}

fn bars(area: &Area<'_>, figure: &Figure, series: &BTreeMap<String, MeasuredSeries>) -> Result<()> {
    let value = |it: &MeasuredSeries| it.points.first().map_or(0.0, |point| point.1);
    let most = series.values().map(value).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(figure.title, (FONT, 18).into_font().color(&INK))
        .margin(14)
        .y_label_area_size(62)
        // Room for the legend above the bars.
        .build_cartesian_2d(0.0..series.len() as f64, 0.0..most * 1.6)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_desc(figure.y)
        .label_style((FONT, 12).into_font().color(&INK))
        .axis_style(INK.mix(0.5))
        .bold_line_style(INK.mix(0.15))
        .light_line_style(INK.mix(0.0))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    let colored = series.iter().zip(COLORS.iter().cycle());
    for (at, ((name, it), color)) in colored.enumerate() {
        let at = at as f64;
        let bar = Rectangle::new([(at + 0.15, 0.0), (at + 0.85, value(it))], color.filled());
        chart
            .draw_series([bar])?
            .label(format!("{name}: {}", short(value(it))))
            .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    legend(&mut chart)
}

fn legend<'a, X, Y>(chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>) -> Result<()>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font((FONT, 12).into_font().color(&INK))
        .background_style(PAGE.mix(0.8))
        .border_style(INK.mix(0.3))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_drawn_for_both_pages() {
        let measured = |y| MeasuredSeries {
            points: vec![(0.0, y), (1000.0, 2.0 * y)],
            run: "cargo xtask bench\n2 cores".to_owned(),
        };
        let series = BTreeMap::from([
            ("Baton".to_owned(), measured(3.0)),
            ("peer".to_owned(), measured(5.0)),
        ]);
        assert_eq!(parse(&lines(&series)).unwrap(), series);
        for figure in &FIGURES {
            let svg = draw(figure, &series).unwrap();
            for part in [
                figure.title,
                figure.y,
                "peer",
                "cargo xtask bench",
                STYLE,
                "currentColor",
            ] {
                assert!(svg.contains(part), "{}: no {part}", figure.name);
            }
            for placeholder in ["#010203", "#040506"] {
                assert!(!svg.contains(placeholder), "{}: {placeholder}", figure.name);
            }
        }
    }

    #[test]
    fn a_figure_without_a_series_says_so() {
        let svg = draw(&FIGURES[0], &BTreeMap::new()).unwrap();
        assert!(svg.contains("not measured yet"), "{svg}");
    }

    #[test]
    fn a_line_without_points_is_an_error() {
        assert!(parse("{\"series\":\"a\",\"run\":\"b\",\"points\":[[1]]}").is_err());
        assert!(parse("{\"points\":[]}").is_err());
    }

    #[test]
    fn distributions_and_numbers_of_axes() {
        let points = distribution(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!(
            points,
            [(1.0, 1.0), (4.0 / 3.0, 2.0), (2.0, 3.0), (4.0, 4.0)]
        );
        for (value, text) in [
            (2e6, "2M"),
            (12_345.0, "12.3k"),
            (0.05, "0.05"),
            (300.0, "300"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
