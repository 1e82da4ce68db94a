package org.flinkskills.bridge.table;

import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Array;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.python.shaded.net.razorvine.pickle.IObjectPickler;
import org.apache.flink.api.python.shaded.net.razorvine.pickle.Pickler;
import org.apache.flink.types.Row;

/**
 * Pickler of rows as Python dicts, with the values that a Python program expects: {@code
 * datetime.date}, {@code time}, {@code datetime} (an {@link Instant} in UTC, a {@link
 * LocalDateTime} naive) and {@code timedelta}, {@code Decimal}, {@code bytes}, {@code list}, {@code
 * dict}; a row is a dict of its named fields.
 */
public final class PythonPickle {
  private static final int MICROS_PER_NANO_DIVISOR = 1000;

  private PythonPickle() {}

  public static byte[] dumps(Row row, RowShape shape) throws IOException {
    return new PlainPickler().dumps(toPython(row, shape, "row"));
  }

  /**
   * Replace the values that the pickler does not support, or writes in another form than a Python
   * program expects.
   */
  private static Object toPython(Object value, RowShape shape, String where) {
    if (value == null
        || value instanceof String
        || value instanceof Boolean
        || value instanceof Byte
        || value instanceof Short
        || value instanceof Integer
        || value instanceof Long
        || value instanceof Float
        || value instanceof Double
        || value instanceof BigInteger
        || value instanceof BigDecimal) {
      return value;
    }
    if (value instanceof Row row) {
      return dictOf(row, shape, where);
    }
    if (value instanceof byte[] bytes) {
      return new PythonBytes(bytes);
    }
    if (value instanceof Map<?, ?> map) {
      return mapOf(map, contentOf(shape), where);
    }
    if (value instanceof Collection<?> items) {
      List<Object> list = new ArrayList<>(items.size());
      items.forEach(item -> list.add(toPython(item, contentOf(shape), where)));
      return list;
    }
    if (value.getClass().isArray()) {
      int length = Array.getLength(value);
      List<Object> list = new ArrayList<>(length);
      for (int i = 0; i < length; i++) {
        list.add(toPython(Array.get(value, i), contentOf(shape), where));
      }
      return list;
    }
    PythonCall call = timeOf(value);
    if (call != null) {
      return call;
    }
    if (value instanceof Character || value instanceof Enum<?>) {
      return value.toString();
    }
    throw new IllegalArgumentException(
        String.format(
            "The field %s holds a %s, which has no counterpart in Python. Cast it to a string or a"
                + " number before the agent.",
            where, value.getClass().getName()));
  }

  private static RowShape contentOf(RowShape shape) {
    return shape != null && shape.names() == null ? shape.part(0) : null;
  }

  private static Map<Object, Object> dictOf(Row row, RowShape shape, String where) {
    Set<String> own = row.getFieldNames(true);
    List<String> declared =
        shape != null && shape.names() != null ? Arrays.asList(shape.names()) : null;
    Map<Object, Object> dict = new LinkedHashMap<>();
    if (own != null) {
      for (String name : own) {
        int position = declared == null ? -1 : declared.indexOf(name);
        RowShape part = position < 0 ? null : shape.part(position);
        dict.put(name, toPython(row.getField(name), part, where + "." + name));
      }
      return dict;
    }
    if (declared == null || declared.size() != row.getArity()) {
      throw new IllegalArgumentException(
          String.format(
              "The names of the %d fields of %s are unknown. Declare the stream's type with"
                  + " Types.ROW_NAMED.",
              row.getArity(), where));
    }
    for (int i = 0; i < row.getArity(); i++) {
      String name = declared.get(i);
      dict.put(name, toPython(row.getField(i), shape.part(i), where + "." + name));
    }
    return dict;
  }

  private static Map<Object, Object> mapOf(Map<?, ?> map, RowShape content, String where) {
    Map<Object, Object> dict = new LinkedHashMap<>();
    map.forEach(
        (key, value) -> dict.put(toPython(key, null, where), toPython(value, content, where)));
    return dict;
  }

  /** Return the constructor call of a date or time in Python, or null for other values. */
  private static PythonCall timeOf(Object value) {
    if (value instanceof LocalDate date) {
      return new PythonCall(
          "datetime", "date", date.getYear(), date.getMonthValue(), date.getDayOfMonth());
    }
    if (value instanceof LocalTime time) {
      return new PythonCall(
          "datetime", "time", time.getHour(), time.getMinute(), time.getSecond(), micros(time));
    }
    if (value instanceof LocalDateTime moment) {
      return datetime(moment, null);
    }
    if (value instanceof Instant instant) {
      return datetime(LocalDateTime.ofInstant(instant, ZoneOffset.UTC), utc());
    }
    if (value instanceof OffsetDateTime moment) {
      return timeOf(moment.toInstant());
    }
    if (value instanceof ZonedDateTime moment) {
      return timeOf(moment.toInstant());
    }
    if (value instanceof java.sql.Timestamp timestamp) {
      return timeOf(timestamp.toLocalDateTime());
    }
    if (value instanceof java.sql.Date date) {
      return timeOf(date.toLocalDate());
    }
    if (value instanceof java.sql.Time time) {
      return timeOf(time.toLocalTime());
    }
    if (value instanceof java.util.Date date) {
      return timeOf(date.toInstant());
    }
    if (value instanceof Duration duration) {
      return new PythonCall(
          "datetime",
          "timedelta",
          0,
          duration.getSeconds(),
          duration.getNano() / MICROS_PER_NANO_DIVISOR);
    }
    return null;
  }

  private static PythonCall datetime(LocalDateTime moment, PythonCall zone) {
    List<Object> arguments =
        new ArrayList<>(
            List.of(
                moment.getYear(),
                moment.getMonthValue(),
                moment.getDayOfMonth(),
                moment.getHour(),
                moment.getMinute(),
                moment.getSecond(),
                micros(moment.toLocalTime())));
    if (zone != null) {
      arguments.add(zone);
    }
    return new PythonCall("datetime", "datetime", arguments.toArray());
  }

  private static PythonCall utc() {
    return new PythonCall("datetime", "timezone", new PythonCall("datetime", "timedelta"));
  }

  private static int micros(LocalTime time) {
    return time.getNano() / MICROS_PER_NANO_DIVISOR;
  }

  /** A call of a class of Python's library with plain arguments. */
  private static final class PythonCall {
    final String module;
    final String name;
    final Object[] arguments;

    PythonCall(String module, String name, Object... arguments) {
      this.module = module;
      this.name = name;
      this.arguments = arguments;
    }
  }

  /** {@code bytes}; the library would write a {@code bytearray}. */
  private record PythonBytes(byte[] value) {}

  /**
   * The library's pickler with our two types. It is extended and not configured, because its
   * registry of types is static and would be shared with everything else in the JVM. Without memo:
   * rows hold few repeated objects.
   */
  private static final class PlainPickler extends Pickler {
    private static final byte GLOBAL = 'c';
    private static final byte MARK = '(';
    private static final byte TUPLE = 't';
    private static final byte REDUCE = 'R';
    private static final byte BINBYTES = 'B';

    PlainPickler() {
      super(false);
    }

    @Override
    protected IObjectPickler getCustomPickler(Class<?> type) {
      if (type == PythonCall.class) {
        return (value, out, pickler) -> writeCall((PythonCall) value, out);
      }
      if (type == PythonBytes.class) {
        return (value, out, pickler) -> writeBytes(((PythonBytes) value).value(), out);
      }
      return super.getCustomPickler(type);
    }

    private void writeCall(PythonCall call, OutputStream out) throws IOException {
      out.write(GLOBAL);
      out.write((call.module + "\n" + call.name + "\n").getBytes(StandardCharsets.US_ASCII));
      out.write(MARK);
      for (Object argument : call.arguments) {
        save(argument);
      }
      out.write(TUPLE);
      out.write(REDUCE);
    }

    private static void writeBytes(byte[] value, OutputStream out) throws IOException {
      out.write(BINBYTES);
      out.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(value.length).array());
      out.write(value);
    }
  }
}
