package io.github.batonlocks;

import io.github.batonlocks.BatonException.Refused;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** JSON of the agent: maps, lists, strings, {@link Long}, {@link Double}, booleans, null. */
@SuppressWarnings("unchecked")
final class Json {
    /** Depth of the agent's answers is 4; deeper ones would end the stack. */
    private static final int MAX_DEPTH = 64;
    private static final Pattern TOKEN = Pattern.compile("\\G\\s*([{}\\[\\]:,]"
            + "|\"(?:[^\"\\\\]|\\\\.)*+\""
            + "|null|true|false|-?\\d+(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\s*");
    private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u(\\p{XDigit}{4})|.)");

    private Json() {}

    /** Returns an object of names and values in turn. */
    static Map<String, Object> object(Object... fields) {
        var found = new LinkedHashMap<String, Object>();
        for (int at = 0; at < fields.length; at += 2) {
            put(found, (String) fields[at], fields[at + 1]);
        }
        return found;
    }

    /** Adds a field: bytes in base64, a time in whole milliseconds. */
    static void put(Map<String, Object> object, String field, Object value) {
        if (value instanceof byte[] data) {
            value = Base64.getEncoder().encodeToString(data);
        } else if (value instanceof Duration time) {
            if (time.isNegative() || time.compareTo(Duration.ofDays(36500)) > 0) {
                throw new Refused(field, time + " is no time from 0 to 100 years", "give another");
            }
            // 0 only for 0: it means not to wait.
            value = time.plusNanos(999_999).toMillis();
        }
        object.put(field, value);
    }

    static String text(Map<String, Object> object, String field) {
        return object.get(field) instanceof String text ? text : "";
    }

    static long number(Map<String, Object> object, String field) {
        return object.get(field) instanceof Number number ? number.longValue() : 0;
    }

    static List<Map<String, Object>> list(Map<String, Object> object, String field) {
        return object.get(field) instanceof List<?> it ? (List<Map<String, Object>>) it : List.of();
    }

    /** Writes a value in ASCII, without the fields that are null. */
    static String write(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().filter(it -> it.getValue() != null)
                    .map(it -> write(it.getKey()) + ":" + write(it.getValue()))
                    .collect(Collectors.joining(",", "{", "}"));
        } else if (value instanceof List<?> list) {
            return list.stream().map(Json::write).collect(Collectors.joining(",", "[", "]"));
        } else if (value instanceof String string) {
            return string.chars().mapToObj(c -> c >= ' ' && c < 127 && c != '"' && c != '\\'
                    ? Character.toString(c) : String.format("\\u%04x", c))
                    .collect(Collectors.joining("", "\"", "\""));
        }
        return String.valueOf(value);
    }

    /** Reads one object. */
    static Map<String, Object> read(String text) {
        var tokens = TOKEN.matcher(text);
        need(next(tokens).equals("{"));
        var found = object(tokens, 0);
        need(tokens.end() == text.length());
        return found;
    }

    private static void need(boolean isRight) { need(isRight, "is not one JSON object"); }

    static void need(boolean isRight, String otherwise) {
        if (!isRight) {
            throw new IllegalArgumentException("the answer " + otherwise);
        }
    }

    private static String next(Matcher tokens) {
        need(tokens.find());
        return tokens.group(1);
    }

    /** Returns the token that begins an item: this one, or that behind the comma. */
    private static String begin(Matcher tokens, String token, boolean isFirst) {
        need(isFirst || token.equals(","));
        return isFirst ? token : next(tokens);
    }

    private static Map<String, Object> object(Matcher tokens, int depth) {
        var found = new LinkedHashMap<String, Object>();
        for (String token = next(tokens); !token.equals("}"); token = next(tokens)) {
            String name = begin(tokens, token, found.isEmpty());
            need(name.startsWith("\"") && next(tokens).equals(":"));
            found.put(string(name), value(tokens, next(tokens), depth + 1));
        }
        return found;
    }

    private static List<Object> list(Matcher tokens, int depth) {
        var found = new ArrayList<>();
        for (String token = next(tokens); !token.equals("]"); token = next(tokens)) {
            found.add(value(tokens, begin(tokens, token, found.isEmpty()), depth + 1));
        }
        return found;
    }

    private static Object value(Matcher tokens, String token, int depth) {
        need(depth <= MAX_DEPTH);
        return switch (token.charAt(0)) {
            case '{' -> object(tokens, depth);
            case '[' -> list(tokens, depth);
            case '"' -> string(token);
            case 'n' -> null;
            case 't', 'f' -> token.equals("true");
            default -> token.matches("-?\\d{1,18}") ? (Object) Long.valueOf(token)
                    : Double.valueOf(token);
        };
    }

    private static String string(String token) {
        String text = token.substring(1, token.length() - 1);
        return ESCAPE.matcher(text).replaceAll(it -> Matcher.quoteReplacement(
                it.group(1) != null ? Character.toString(Integer.parseInt(it.group(1), 16))
                        // Java has all others of JSON but this one.
                        : it.group().equals("\\/") ? "/" : it.group().translateEscapes()));
    }
}
