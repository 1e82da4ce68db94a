package org.flinkskills.bridge.streams;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.OutputStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.functions.util.ListCollector;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.flinkskills.bridge.table.CanonicalKey;
import org.flinkskills.bridge.table.RowShape;
import org.junit.jupiter.api.Test;

class KeyedEventsTest {

  private static List<Row> key(TypeInformation<?> type, String field, Row... rows)
      throws Exception {
    List<Row> keyed = new ArrayList<>();
    KeyedEvents.FromRows function = KeyedEvents.FromRows.byField(RowShape.ofRow(type), field);
    for (Row row : rows) {
      function.flatMap(row, new ListCollector<>(keyed));
    }
    return keyed;
  }

  @Test
  void aKeyOfSeveralFieldsIsTheListOfTheirValues() throws Exception {
    TypeInformation<Row> type =
        Types.ROW_NAMED(new String[] {"a", "b", "c"}, Types.STRING, Types.INT, Types.BOOLEAN);
    KeyedEvents.FromRows function =
        KeyedEvents.FromRows.byFields(RowShape.ofRow(type), new String[] {"b", "a", "c"});
    List<Row> keyed = new ArrayList<>();
    function.flatMap(Row.of("x\"", 7, null), new ListCollector<>(keyed));
    assertEquals("[7,\"x\\\"\",null]", keyed.get(0).getField(0));
  }

  /** Return the output of a Python program for bytes on its standard input. */
  private static String python(String expression, byte[] input) throws Exception {
    Process process =
        new ProcessBuilder(
                "python3",
                "-c",
                "import sys, json, pickle\ndata = sys.stdin.buffer.read()\n"
                    + "sys.stdout.buffer.write(("
                    + expression
                    + ").encode())")
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    try (OutputStream stdin = process.getOutputStream()) {
      stdin.write(input);
    }
    String answer = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertTrue(process.waitFor(20, TimeUnit.SECONDS));
    assertEquals(0, process.exitValue());
    return answer;
  }

  private static String unpickled(Row keyed) throws Exception {
    return python("repr(pickle.loads(data))", (byte[]) keyed.getField(1));
  }

  @Test
  void rowsBecomeDictsOfPythonValues() throws Exception {
    TypeInformation<?> inner = Types.ROW_NAMED(new String[] {"x", "y"}, Types.INT, Types.STRING);
    Map<String, Object> values = new LinkedHashMap<>();
    values.put("key", "k");
    values.put("flag", true);
    values.put("tiny", (byte) -1);
    values.put("long", Long.MAX_VALUE);
    values.put("float", 1.5f);
    values.put("decimal", new BigDecimal("12.340"));
    values.put("huge", new BigInteger("123456789012345678901234567890"));
    values.put("bytes", new byte[] {0, 1, (byte) 255});
    values.put("date", LocalDate.of(2024, 2, 29));
    values.put("time", LocalTime.of(1, 2, 3, 4_005_000));
    values.put("naive", LocalDateTime.of(2024, 1, 2, 3, 4, 5, 6_000));
    values.put("instant", Instant.parse("2024-01-02T03:04:05.000006Z"));
    values.put("sqldate", java.sql.Date.valueOf("2024-02-29"));
    values.put("sqltime", java.sql.Time.valueOf("01:02:03"));
    values.put("sqlstamp", java.sql.Timestamp.valueOf("2024-01-02 03:04:05.000006"));
    values.put("duration", Duration.ofMillis(-1500));
    values.put("ints", new int[] {1, 2});
    values.put("texts", new String[] {"ä", null});
    values.put("row", Row.of(1, "one"));
    values.put("rows", List.of(Row.of(2, "two")));
    values.put("rowarray", new Row[] {Row.of(3, "three")});
    values.put("map", new LinkedHashMap<>(Map.of("m", Row.of(4, "four"))));
    values.put("null", null);
    Row row = new Row(values.size());
    TypeInformation<?>[] types = new TypeInformation<?>[values.size()];
    int position = 0;
    for (Map.Entry<String, Object> field : values.entrySet()) {
      row.setField(position, field.getValue());
      types[position++] =
          switch (field.getKey()) {
            case "key" -> Types.STRING;
            case "row" -> inner;
            case "rows" -> Types.LIST(inner);
            case "rowarray" -> Types.OBJECT_ARRAY(inner);
            case "map" -> Types.MAP(Types.STRING, inner);
            default -> Types.GENERIC(Object.class);
          };
    }
    TypeInformation<?> type = Types.ROW_NAMED(values.keySet().toArray(new String[0]), types);
    Row keyed = key(type, "key", row).get(0);
    assertEquals("\"k\"", keyed.getField(0));
    assertEquals(
        "{'key': 'k', 'flag': True, 'tiny': -1, 'long': 9223372036854775807, 'float': 1.5, "
            + "'decimal': Decimal('12.340'), 'huge': 123456789012345678901234567890, "
            + "'bytes': b'\\x00\\x01\\xff', 'date': datetime.date(2024, 2, 29), "
            + "'time': datetime.time(1, 2, 3, 4005), "
            + "'naive': datetime.datetime(2024, 1, 2, 3, 4, 5, 6), "
            + "'instant': datetime.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc), "
            + "'sqldate': datetime.date(2024, 2, 29), 'sqltime': datetime.time(1, 2, 3), "
            + "'sqlstamp': datetime.datetime(2024, 1, 2, 3, 4, 5, 6), "
            + "'duration': datetime.timedelta(days=-1, seconds=86398, microseconds=500000), "
            + "'ints': [1, 2], 'texts': ['ä', None], 'row': {'x': 1, 'y': 'one'}, "
            + "'rows': [{'x': 2, 'y': 'two'}], 'rowarray': [{'x': 3, 'y': 'three'}], "
            + "'map': {'m': {'x': 4, 'y': 'four'}}, 'null': None}",
        unpickled(keyed));
  }

  @Test
  void rowsThatKnowTheirNamesNeedNoPositions() throws Exception {
    TypeInformation<?> type = Types.ROW_NAMED(new String[] {"a", "b"}, Types.INT, Types.STRING);
    Row row = Row.withNames();
    row.setField("b", "x");
    row.setField("a", 5);
    Row keyed = key(type, "a", row).get(0);
    assertEquals("5", keyed.getField(0));
    assertEquals("True", python("str(pickle.loads(data) == {'a': 5, 'b': 'x'})", bytes(keyed)));
  }

  private static byte[] bytes(Row keyed) {
    return (byte[]) keyed.getField(1);
  }

  @Test
  void aValueWithoutCounterpartIsNamed() {
    TypeInformation<?> type =
        Types.ROW_NAMED(new String[] {"k", "odd"}, Types.INT, Types.GENERIC(Object.class));
    IllegalArgumentException failure =
        assertThrows(
            IllegalArgumentException.class, () -> key(type, "k", Row.of(1, new StringBuilder())));
    assertTrue(failure.getMessage().contains("row.odd"), failure.getMessage());
    assertTrue(failure.getMessage().contains("StringBuilder"), failure.getMessage());
  }

  @Test
  void changesOfATableBecomeEventsWhereThatMakesSense() throws Exception {
    TypeInformation<?> type = Types.ROW_NAMED(new String[] {"k"}, Types.INT);
    List<Row> keyed =
        key(
            type,
            "k",
            Row.ofKind(RowKind.INSERT, 1),
            Row.ofKind(RowKind.UPDATE_BEFORE, 1),
            Row.ofKind(RowKind.UPDATE_AFTER, 2));
    assertEquals(List.of("1", "2"), keyed.stream().map(row -> row.getField(0)).toList());
    IllegalArgumentException failure =
        assertThrows(
            IllegalArgumentException.class, () -> key(type, "k", Row.ofKind(RowKind.DELETE, 1)));
    assertTrue(failure.getMessage().contains("DELETE"), failure.getMessage());
  }

  @Test
  void keysAreTheTextThatPythonWrites() throws Exception {
    List<String> texts =
        List.of(
            "plain", "", "\"quoted\\\"", "tab\tnew\nline\r\b\f", "\u0001\u001f\u007f", "äß€😀/");
    StringBuilder json = new StringBuilder();
    for (String text : texts) {
      json.append(CanonicalKey.of(text)).append('\n');
    }
    String same =
        "str([line for line in data.decode().split(chr(10))[:-1] if json.dumps(json.loads(line),"
            + " ensure_ascii=False, separators=(',', ':')) != line])";
    assertEquals("[]", python(same, json.toString().getBytes(StandardCharsets.UTF_8)));
    assertEquals("-5", CanonicalKey.of((byte) -5));
    assertEquals("9223372036854775807", CanonicalKey.of(Long.MAX_VALUE));
    assertEquals("true", CanonicalKey.of(true));
    assertEquals("null", CanonicalKey.of(null));
    assertThrows(IllegalArgumentException.class, () -> CanonicalKey.of(1.5));
  }

  @Test
  void onlySomeTypesCanBeAKey() {
    TypeInformation<?> type =
        Types.ROW_NAMED(
            new String[] {"s", "b", "i", "l", "d", "r"},
            Types.STRING,
            Types.BOOLEAN,
            Types.SHORT,
            Types.LONG,
            Types.DOUBLE,
            Types.ROW(Types.INT));
    for (String field : List.of("s", "b", "i", "l")) {
      assertTrue(AgentStream.canKeyInJava(type, field), field);
    }
    assertFalse(AgentStream.canKeyInJava(type, "d"));
    assertFalse(AgentStream.canKeyInJava(type, "r"));
    IllegalArgumentException failure =
        assertThrows(IllegalArgumentException.class, () -> AgentStream.canKeyInJava(type, "nope"));
    assertTrue(failure.getMessage().contains("[s, b, i, l, d, r]"), failure.getMessage());
    assertThrows(IllegalArgumentException.class, () -> AgentStream.canKeyInJava(Types.STRING, "s"));
  }

  @Test
  void linesAreSplitAtTheirFirstTabulator() {
    Row row = new KeyedEvents.FromLines().map("\"k\\tk\"\t{\"t\":\"a\tb\"}");
    assertEquals("\"k\\tk\"", row.getField(0));
    assertEquals("{\"t\":\"a\tb\"}", new String(bytes(row), StandardCharsets.UTF_8));
    assertThrows(IllegalArgumentException.class, () -> new KeyedEvents.FromLines().map("no tab"));
  }

  @Test
  void pickledPairsBecomeKeyedEvents() throws Exception {
    String pair = "pickle.dumps(('\"k\\u00e9\"', b'\\x00\\xff'), 3)";
    String text = python("__import__('base64').b64encode(" + pair + ").decode()", new byte[0]);
    Row row = new KeyedEvents.FromPairs().map(Base64.getDecoder().decode(text));
    assertEquals("\"k\u00e9\"", row.getField(0));
    assertArrayEquals(new byte[] {0, (byte) 0xff}, bytes(row));
  }
}
