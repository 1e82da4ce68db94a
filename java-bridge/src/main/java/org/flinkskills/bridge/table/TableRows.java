package org.flinkskills.bridge.table;

import java.io.IOException;
import java.lang.reflect.Array;
import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.python.shaded.net.razorvine.pickle.Unpickler;
import org.apache.flink.table.types.logical.ArrayType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.MapType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.types.Row;

/**
 * Rows of a table, of what workers write for them: the pickle of a tuple with one plain value a
 * column.
 *
 * <p>The worker has made every value fit already. A date is its number of days since 1970, a time
 * its nanoseconds since midnight, a point in time a pair of seconds since 1970 and nanoseconds, a
 * decimal its string, a map a list of pairs, a row a tuple. The Python side is {@code
 * flink_skills.agents.rows.column_types}; both must change together.
 */
public final class TableRows implements MapFunction<byte[], Row> {
  private static final long serialVersionUID = 1L;

  private final LogicalType[] types;

  private TableRows(LogicalType[] types) {
    this.types = types;
  }

  public static TableRows of(LogicalType[] types) {
    return new TableRows(types.clone());
  }

  /** The type of such rows, with exactly the classes that Flink's tables take for these types. */
  public static TypeInformation<Row> typeOf(String[] names, LogicalType[] types) {
    return Types.ROW_NAMED(
        names, Arrays.stream(types).map(TableRows::typeOf).toArray(TypeInformation[]::new));
  }

  @Override
  public Row map(byte[] pickled) throws IOException {
    Object[] values = items(new Unpickler().loads(pickled));
    Row row = new Row(types.length);
    for (int i = 0; i < types.length; i++) {
      row.setField(i, value(values[i], types[i]));
    }
    return row;
  }

  private static TypeInformation<?> typeOf(LogicalType type) {
    return switch (type.getTypeRoot()) {
      case CHAR, VARCHAR -> Types.STRING;
      case BOOLEAN -> Types.BOOLEAN;
      case BINARY, VARBINARY -> Types.PRIMITIVE_ARRAY(Types.BYTE);
      case DECIMAL -> Types.BIG_DEC;
      case TINYINT -> Types.BYTE;
      case SMALLINT -> Types.SHORT;
      case INTEGER -> Types.INT;
      case BIGINT -> Types.LONG;
      case FLOAT -> Types.FLOAT;
      case DOUBLE -> Types.DOUBLE;
      case DATE -> Types.LOCAL_DATE;
      case TIME_WITHOUT_TIME_ZONE -> Types.LOCAL_TIME;
      case TIMESTAMP_WITHOUT_TIME_ZONE -> Types.LOCAL_DATE_TIME;
      case TIMESTAMP_WITH_LOCAL_TIME_ZONE -> Types.INSTANT;
      case ARRAY -> Types.OBJECT_ARRAY(typeOf(((ArrayType) type).getElementType()));
      case MAP ->
          Types.MAP(typeOf(((MapType) type).getKeyType()), typeOf(((MapType) type).getValueType()));
      case ROW ->
          typeOf(
              ((RowType) type).getFieldNames().toArray(new String[0]),
              type.getChildren().toArray(new LogicalType[0]));
      default ->
          throw new IllegalArgumentException(
              String.format("The column type %s is not supported.", type));
    };
  }

  private static Object value(Object value, LogicalType type) {
    if (value == null) {
      return null;
    }
    return switch (type.getTypeRoot()) {
      case DECIMAL -> new BigDecimal((String) value);
      case TINYINT -> ((Number) value).byteValue();
      case SMALLINT -> ((Number) value).shortValue();
      case INTEGER -> ((Number) value).intValue();
      case BIGINT -> ((Number) value).longValue();
      case FLOAT -> ((Number) value).floatValue();
      case DOUBLE -> ((Number) value).doubleValue();
      case DATE -> LocalDate.ofEpochDay(((Number) value).longValue());
      case TIME_WITHOUT_TIME_ZONE -> LocalTime.ofNanoOfDay(((Number) value).longValue());
      case TIMESTAMP_WITHOUT_TIME_ZONE ->
          LocalDateTime.ofInstant(instant(items(value)), ZoneOffset.UTC);
      case TIMESTAMP_WITH_LOCAL_TIME_ZONE -> instant(items(value));
      case ARRAY -> array(items(value), ((ArrayType) type).getElementType());
      case MAP -> map(items(value), (MapType) type);
      case ROW -> row(items(value), type.getChildren());
      default -> value; // strings, booleans and bytes
    };
  }

  private static Instant instant(Object[] parts) {
    return Instant.ofEpochSecond(((Number) parts[0]).longValue(), ((Number) parts[1]).longValue());
  }

  private static Object array(Object[] items, LogicalType type) {
    Object found = Array.newInstance(typeOf(type).getTypeClass(), items.length);
    for (int i = 0; i < items.length; i++) {
      Array.set(found, i, value(items[i], type));
    }
    return found;
  }

  private static Map<Object, Object> map(Object[] pairs, MapType type) {
    Map<Object, Object> found = new HashMap<>();
    for (Object pair : pairs) {
      Object[] entry = items(pair);
      found.put(value(entry[0], type.getKeyType()), value(entry[1], type.getValueType()));
    }
    return found;
  }

  private static Row row(Object[] values, List<LogicalType> types) {
    Row row = new Row(types.size());
    for (int i = 0; i < values.length; i++) {
      row.setField(i, value(values[i], types.get(i)));
    }
    return row;
  }

  private static Object[] items(Object value) {
    return value instanceof List<?> list ? list.toArray() : (Object[]) value;
  }
}
