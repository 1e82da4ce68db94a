package org.flinkskills.bridge.table;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.types.Row;
import org.junit.jupiter.api.Test;

class TableRowsTest {

  private static LogicalType[] logical(DataType... types) {
    return List.of(types).stream().map(DataType::getLogicalType).toArray(LogicalType[]::new);
  }

  private static Row row(String python, DataType... types) throws Exception {
    Process process =
        new ProcessBuilder(
                "python3",
                "-c",
                "import sys, pickle\nsys.stdout.buffer.write(pickle.dumps("
                    + python
                    + ", protocol=3))")
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    byte[] pickled = process.getInputStream().readAllBytes();
    assertEquals(0, process.waitFor());
    return TableRows.of(logical(types)).map(pickled);
  }

  @Test
  void plainValuesBecomeThoseOfTheirColumns() throws Exception {
    Row found =
        row(
            "('\\xe9', True, 1, 2, 3, 2**62, 1.5, 2, '12.50', b'\\xff', None)",
            DataTypes.STRING(),
            DataTypes.BOOLEAN(),
            DataTypes.TINYINT(),
            DataTypes.SMALLINT(),
            DataTypes.INT(),
            DataTypes.BIGINT(),
            DataTypes.FLOAT(),
            DataTypes.DOUBLE(),
            DataTypes.DECIMAL(10, 2),
            DataTypes.BYTES(),
            DataTypes.INT());
    assertEquals("é", found.getField(0));
    assertEquals(true, found.getField(1));
    assertEquals((byte) 1, found.getField(2));
    assertEquals((short) 2, found.getField(3));
    assertEquals(3, found.getField(4));
    assertEquals(1L << 62, found.getField(5));
    assertEquals(1.5f, found.getField(6));
    assertEquals(2.0, found.getField(7));
    assertEquals(new BigDecimal("12.50"), found.getField(8));
    assertArrayEquals(new byte[] {-1}, (byte[]) found.getField(9));
    assertNull(found.getField(10));
  }

  @Test
  void timesAreExactBeforeAndAfter1970() throws Exception {
    Row found =
        row(
            "(-1, 36000500000000, (-1, 999000000), (1770112800, 123456000))",
            DataTypes.DATE(),
            DataTypes.TIME(3),
            DataTypes.TIMESTAMP(3),
            DataTypes.TIMESTAMP_LTZ(6));
    assertEquals(LocalDate.of(1969, 12, 31), found.getField(0));
    assertEquals(LocalTime.of(10, 0, 0, 500_000_000), found.getField(1));
    assertEquals(LocalDateTime.of(1969, 12, 31, 23, 59, 59, 999_000_000), found.getField(2));
    assertEquals(Instant.parse("2026-02-03T10:00:00.123456Z"), found.getField(3));
  }

  @Test
  void whatIsInsideOfOthersIsConvertedToo() throws Exception {
    DataType inner =
        DataTypes.ROW(
            DataTypes.FIELD("x", DataTypes.BIGINT()),
            DataTypes.FIELD("days", DataTypes.ARRAY(DataTypes.DATE())));
    Row found =
        row(
            "([1, None], [('a', 1)], [(5, [0])], [])",
            DataTypes.ARRAY(DataTypes.INT()),
            DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()),
            DataTypes.ARRAY(inner),
            DataTypes.ARRAY(DataTypes.BYTES()));
    assertArrayEquals(new Integer[] {1, null}, (Integer[]) found.getField(0));
    Row[] rows = (Row[]) found.getField(2);
    assertEquals(5L, rows[0].getField(0));
    assertArrayEquals(new LocalDate[] {LocalDate.EPOCH}, (LocalDate[]) rows[0].getField(1));
    assertEquals(byte[][].class, found.getField(3).getClass());
  }

  @Test
  void mapsAreListsOfPairs() throws Exception {
    Row found =
        row("([('a', 1), ('b', None)],)", DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()));
    Map<?, ?> map = (Map<?, ?>) found.getField(0);
    assertEquals(1, map.get("a"));
    assertEquals(List.of(true, 2), List.of(map.containsKey("b"), map.size()));
  }

  @Test
  void theTypeOfRowsNamesEveryField() {
    LogicalType[] types =
        logical(
            DataTypes.STRING(), DataTypes.ROW(DataTypes.FIELD("y", DataTypes.TIMESTAMP_LTZ(3))));
    TypeInformation<Row> type = TableRows.typeOf(new String[] {"a", "b"}, types);
    assertEquals("Row(a: String, b: Row(y: Instant))", type.toString());
    assertThrows(
        IllegalArgumentException.class,
        () ->
            TableRows.typeOf(new String[] {"m"}, logical(DataTypes.MULTISET(DataTypes.STRING()))));
  }
}
