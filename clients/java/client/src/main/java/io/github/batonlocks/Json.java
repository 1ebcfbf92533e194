package io.github.batonlocks;

import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** JSON of the agent: maps, lists, strings, {@link Long}, {@link Double}, booleans, null. */
@SuppressWarnings("unchecked")
final class Json {
    /** Depth of the agent's answers is 4; deeper ones would end the stack. */
    private static final int MAX_DEPTH = 64;
    private static final Pattern WORD =
            Pattern.compile("null|true|false|-?\\d+(\\.\\d+)?([eE][+-]?\\d+)?");

    private final String text;
    private int at;

    private Json(String text) { this.text = text; }

    /** Returns an object of names and values in turn. */
    static Map<String, Object> object(Object... fields) {
        var found = new LinkedHashMap<String, Object>();
        for (int at = 0; at < fields.length; at += 2) {
            found.put((String) fields[at], fields[at + 1]);
        }
        return found;
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

    static String base64(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
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
        try {
            var json = new Json(text.strip());
            var found = (Map<String, Object>) json.value(0);
            json.need(found != null && json.at == json.text.length());
            return found;
        } catch (ClassCastException | IndexOutOfBoundsException error) {
            throw new IllegalArgumentException("the answer is not one JSON object", error);
        }
    }

    private void need(boolean isRight) {
        if (!isRight) {
            throw new IllegalArgumentException("the answer is not JSON at character " + at);
        }
    }

    /** Skips space, and the character if it comes then. */
    private boolean skip(char wanted) {
        while (" \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        boolean isThere = text.charAt(at) == wanted;
        at += isThere ? 1 : 0;
        return isThere;
    }

    private Object value(int depth) {
        need(depth <= MAX_DEPTH);
        boolean isObject = skip('{');
        if (isObject || skip('[')) {
            // The names in an array are the indices.
            var found = new LinkedHashMap<String, Object>();
            while (!skip(isObject ? '}' : ']')) {
                need(found.isEmpty() || skip(','));
                need(!isObject || skip('"'));
                String name = isObject ? string() : String.valueOf(found.size());
                need(!isObject || skip(':'));
                found.put(name, value(depth + 1));
            }
            return isObject ? found : new ArrayList<>(found.values());
        } else if (skip('"')) {
            return string();
        }
        var word = WORD.matcher(text).region(at, text.length());
        need(word.lookingAt());
        at = word.end();
        return switch (word.group()) {
            case "null" -> null;
            case "true", "false" -> word.group().equals("true");
            default -> word.group().matches("-?\\d{1,18}") ? (Object) Long.valueOf(word.group())
                    : Double.valueOf(word.group());
        };
    }

    private String string() {
        var found = new StringBuilder();
        for (char c = text.charAt(at++); c != '"'; c = text.charAt(at++)) {
            if (c == '\\') {
                c = text.charAt(at++);
                int escape = "bfnrt".indexOf(c);
                if (c == 'u') {
                    at += 4;
                    c = (char) Integer.parseInt(text.substring(at - 4, at), 16);
                } else if (escape >= 0) {
                    c = "\b\f\n\r\t".charAt(escape);
                }
            }
            found.append(c);
        }
        return found.toString();
    }
}
