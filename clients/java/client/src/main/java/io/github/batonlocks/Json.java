package io.github.batonlocks;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** JSON of the agent: maps, lists, strings, {@link Long}, {@link Double}, booleans, null. */
final class Json {
    /** Depth of the agent's answers is 4; deeper ones would end the stack. */
    private static final int MAX_DEPTH = 64;

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Reads one object. */
    static Map<String, Object> read(String text) {
        try {
            var json = new Json(text);
            @SuppressWarnings("unchecked")
            var found = (Map<String, Object>) json.value(0);
            if (json.peek() != 0 || found == null) {
                throw json.wrong();
            }
            return found;
        } catch (ClassCastException | IndexOutOfBoundsException error) {
            throw new IllegalArgumentException("the answer is not one JSON object", error);
        }
    }

    /** Writes a value, without the fields that are null. */
    static String write(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().filter(it -> it.getValue() != null)
                    .map(it -> write(it.getKey()) + ":" + write(it.getValue()))
                    .collect(Collectors.joining(",", "{", "}"));
        } else if (value instanceof List<?> list) {
            return list.stream().map(Json::write).collect(Collectors.joining(",", "[", "]"));
        } else if (value instanceof String string) {
            var quoted = new StringBuilder("\"");
            for (char c : string.toCharArray()) {
                boolean isPlain = c >= ' ' && c < 127 && c != '"' && c != '\\';
                quoted.append(isPlain ? String.valueOf(c) : String.format("\\u%04x", (int) c));
            }
            return quoted.append('"').toString();
        }
        return String.valueOf(value);
    }

    private IllegalArgumentException wrong() {
        return new IllegalArgumentException("the answer is not JSON at character " + at);
    }

    /** Skips space; 0 at the end. */
    private char peek() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : 0;
    }

    private boolean skip(char wanted) {
        boolean isThere = peek() == wanted;
        at += isThere ? 1 : 0;
        return isThere;
    }

    private void need(char wanted) {
        if (!skip(wanted)) {
            throw wrong();
        }
    }

    private Object value(int depth) {
        if (depth > MAX_DEPTH) {
            throw wrong();
        } else if (skip('{')) {
            var map = new LinkedHashMap<String, Object>();
            for (boolean isMore = !skip('}'); isMore; isMore = !skip('}')) {
                if (!map.isEmpty()) {
                    need(',');
                }
                need('"');
                String name = string();
                need(':');
                map.put(name, value(depth + 1));
            }
            return map;
        } else if (skip('[')) {
            var list = new ArrayList<Object>();
            for (boolean isMore = !skip(']'); isMore; isMore = !skip(']')) {
                if (!list.isEmpty()) {
                    need(',');
                }
                list.add(value(depth + 1));
            }
            return list;
        } else if (skip('"')) {
            return string();
        }
        int from = at;
        while (at < text.length() && ",]} \t\r\n".indexOf(text.charAt(at)) < 0) {
            at++;
        }
        String word = text.substring(from, at);
        return switch (word) {
            case "null" -> null;
            case "true", "false" -> word.equals("true");
            default -> number(word);
        };
    }

    private Object number(String word) {
        if (word.matches("-?\\d{1,18}")) {
            return Long.valueOf(word);
        } else if (word.matches("-?\\d+(\\.\\d+)?([eE][+-]?\\d+)?")) {
            return Double.valueOf(word);
        }
        throw wrong();
    }

    private String string() {
        var found = new StringBuilder();
        for (char c = text.charAt(at++); c != '"'; c = text.charAt(at++)) {
            if (c == '\\') {
                c = text.charAt(at++);
                int short_ = "bfnrt".indexOf(c);
                if (c == 'u') {
                    c = (char) Integer.parseInt(text.substring(at, at + 4), 16);
                    at += 4;
                } else if (short_ >= 0) {
                    c = "\b\f\n\r\t".charAt(short_);
                }
            }
            found.append(c);
        }
        return found.toString();
    }
}
