package org.flinkskills.bridge.streams;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.python.shaded.net.razorvine.pickle.Unpickler;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.Collector;
import org.flinkskills.bridge.table.CanonicalKey;
import org.flinkskills.bridge.table.PythonPickle;
import org.flinkskills.bridge.table.RowShape;

/** Functions that convert other streams to {@code Row(String key, byte[] event)}. */
public final class KeyedEvents {
  private KeyedEvents() {}

  /** The key of such a row. */
  public static final class KeyOf implements KeySelector<Row, String> {
    private static final long serialVersionUID = 1L;

    @Override
    public String getKey(Row row) {
      return (String) row.getField(0);
    }
  }

  /** Rows with named fields; the event is the pickle of a dict. */
  static final class FromRows implements FlatMapFunction<Row, Row> {
    private static final long serialVersionUID = 1L;

    private final RowShape shape;
    private final String[] fields;
    private final int[] indexes;
    private final boolean isList;

    /** The field with the wait that a row answers; null if no row is an answer. */
    private final String waitField;

    private FromRows(RowShape shape, String[] fields, boolean isList, String waitField) {
      this.shape = shape;
      this.fields = fields;
      this.indexes = Arrays.stream(fields).mapToInt(shape::indexOf).toArray();
      this.isList = isList;
      this.waitField = waitField;
      if (waitField != null) {
        shape.indexOf(waitField);
      }
    }

    /** The key is the value of one field. */
    static FromRows byField(RowShape shape, String field) {
      return new FromRows(shape, new String[] {field}, false, null);
    }

    /** The key is the list of the values of these fields. */
    static FromRows byFields(RowShape shape, String[] fields) {
      return new FromRows(shape, fields.clone(), true, null);
    }

    /** Rows with a value in a field are answers to that wait. */
    FromRows withWait(String field) {
      return new FromRows(shape, fields, isList, field);
    }

    @Override
    public void flatMap(Row row, Collector<Row> out) throws IOException {
      if (row.getKind() == RowKind.UPDATE_BEFORE) {
        // The row after the update follows, with the current values.
        return;
      }
      if (row.getKind() == RowKind.DELETE) {
        throw new IllegalArgumentException(
            "The input of the agent (key field '"
                + String.join(", ", fields)
                + "') has a DELETE row, but a finished turn cannot be reverted. Filter out deletes,"
                + " or use a query that only inserts or updates.");
      }
      boolean named = row.getFieldNames(false) != null;
      Object[] key = new Object[fields.length];
      for (int i = 0; i < key.length; i++) {
        key[i] = named ? row.getField(fields[i]) : row.getField(indexes[i]);
      }
      String text = isList ? CanonicalKey.ofList(key) : CanonicalKey.of(key[0]);
      byte[] event = PythonPickle.dumps(row, shape);
      out.collect(waitField == null ? Row.of(text, event) : Row.of(text, event, wait(row, named)));
    }

    private String wait(Row row, boolean named) {
      Object wait = named ? row.getField(waitField) : row.getField(shape.indexOf(waitField));
      return wait == null || wait.toString().isEmpty() ? null : wait.toString();
    }
  }

  /** Rows that are all answers. One without a wait has an empty string, which is an error. */
  static final class ToAnswers implements MapFunction<Row, Row> {
    private static final long serialVersionUID = 1L;

    @Override
    public Row map(Row row) {
      return row.getField(2) == null ? Row.of(row.getField(0), row.getField(1), "") : row;
    }
  }

  /** Rows of control records. A field without a value is omitted. */
  static final class ToControlRecords implements FlatMapFunction<Row, String> {
    private static final long serialVersionUID = 1L;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final RowShape shape;
    private final String[] fields;

    ToControlRecords(RowShape shape, String[] fields) {
      this.shape = shape;
      this.fields = fields.clone();
    }

    @Override
    public void flatMap(Row row, Collector<String> out) throws IOException {
      if (row.getKind() == RowKind.UPDATE_BEFORE || row.getKind() == RowKind.DELETE) {
        return;
      }
      boolean named = row.getFieldNames(false) != null;
      ObjectNode record = JSON.createObjectNode();
      for (String field : fields) {
        Object value = named ? row.getField(field) : row.getField(shape.indexOf(field));
        if (value != null) {
          record.put(field, value.toString());
        }
      }
      out.collect(JSON.writeValueAsString(record));
    }
  }

  /** Lines of a JSON key, a tab and a JSON event. The event is its UTF-8 string. */
  static final class FromLines implements MapFunction<String, Row> {
    private static final long serialVersionUID = 1L;
    private static final int SHOWN = 80;

    @Override
    public Row map(String line) {
      int tab = line.indexOf('\t');
      if (tab < 0) {
        throw new IllegalArgumentException(
            "A line of the agent's input has no tab between key and event: "
                + line.substring(0, Math.min(SHOWN, line.length())));
      }
      return Row.of(
          line.substring(0, tab), line.substring(tab + 1).getBytes(StandardCharsets.UTF_8));
    }
  }

  /** Pickled pairs of a key's string and an event's bytes. */
  static final class FromPairs implements MapFunction<byte[], Row> {
    private static final long serialVersionUID = 1L;

    @Override
    public Row map(byte[] pickled) throws IOException {
      Object[] pair = (Object[]) new Unpickler().loads(pickled);
      return Row.of(pair[0], pair[1]);
    }
  }
}
