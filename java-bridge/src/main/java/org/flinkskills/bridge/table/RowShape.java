package org.flinkskills.bridge.table;

import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.typeutils.ListTypeInfo;
import org.apache.flink.api.java.typeutils.MapTypeInfo;
import org.apache.flink.api.java.typeutils.ObjectArrayTypeInfo;
import org.apache.flink.api.java.typeutils.RowTypeInfo;
import org.apache.flink.table.types.DataTypeQueryable;
import org.apache.flink.table.types.logical.ArrayType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.LogicalTypeRoot;
import org.apache.flink.table.types.logical.MapType;
import org.apache.flink.table.types.logical.RowType;

/**
 * Field names of a row type, and of the rows nested in it. Not every row has the names itself.
 *
 * @param names the fields of a row; null for other types
 * @param parts the fields' shapes, or the one of a list's items or a map's values; an item is null
 *     where no row is inside
 * @param keyable the fields of a row that can be a key
 */
public record RowShape(String[] names, RowShape[] parts, boolean[] keyable)
    implements Serializable {
  private static final Set<TypeInformation<?>> KEY_TYPES =
      Set.of(Types.STRING, Types.BOOLEAN, Types.BYTE, Types.SHORT, Types.INT, Types.LONG);
  private static final Set<LogicalTypeRoot> KEY_ROOTS =
      Set.of(
          LogicalTypeRoot.CHAR,
          LogicalTypeRoot.VARCHAR,
          LogicalTypeRoot.BOOLEAN,
          LogicalTypeRoot.TINYINT,
          LogicalTypeRoot.SMALLINT,
          LogicalTypeRoot.INTEGER,
          LogicalTypeRoot.BIGINT);

  /** Return the shape of a row type. Fail for any other type. */
  public static RowShape ofRow(TypeInformation<?> type) {
    RowShape shape = of(type);
    if (shape == null || shape.names == null) {
      throw new IllegalArgumentException(
          "The stream's type is "
              + type
              + ", not a row type with named fields. Declare one (Types.ROW_NAMED), or pass the key"
              + " as a function.");
    }
    return shape;
  }

  /**
   * Return the position of a field. Fail with a list of the fields if there is none of that name.
   */
  public int indexOf(String field) {
    int index = Arrays.asList(names).indexOf(field);
    if (index < 0) {
      throw new IllegalArgumentException(
          "There is no field '"
              + field
              + "' in the stream; its fields are "
              + List.of(names)
              + ".");
    }
    return index;
  }

  RowShape part(int index) {
    return parts[index];
  }

  private static RowShape of(TypeInformation<?> type) {
    if (type instanceof RowTypeInfo row) {
      RowShape[] parts = new RowShape[row.getArity()];
      boolean[] keyable = new boolean[row.getArity()];
      for (int i = 0; i < parts.length; i++) {
        parts[i] = of(row.getTypeAt(i));
        keyable[i] = KEY_TYPES.contains(row.getTypeAt(i));
      }
      return new RowShape(row.getFieldNames(), parts, keyable);
    }
    if (type instanceof DataTypeQueryable table) {
      return of(table.getDataType().getLogicalType());
    }
    if (type instanceof ListTypeInfo<?> list) {
      return container(of(list.getElementTypeInfo()));
    }
    if (type instanceof ObjectArrayTypeInfo<?, ?> array) {
      return container(of(array.getComponentInfo()));
    }
    if (type instanceof MapTypeInfo<?, ?> map) {
      return container(of(map.getValueTypeInfo()));
    }
    return null;
  }

  private static RowShape of(LogicalType type) {
    if (type instanceof RowType row) {
      int count = row.getFieldCount();
      RowShape[] parts = new RowShape[count];
      boolean[] keyable = new boolean[count];
      for (int i = 0; i < count; i++) {
        parts[i] = of(row.getTypeAt(i));
        keyable[i] = KEY_ROOTS.contains(row.getTypeAt(i).getTypeRoot());
      }
      return new RowShape(row.getFieldNames().toArray(new String[0]), parts, keyable);
    }
    if (type instanceof ArrayType array) {
      return container(of(array.getElementType()));
    }
    if (type instanceof MapType map) {
      return container(of(map.getValueType()));
    }
    return null;
  }

  private static RowShape container(RowShape content) {
    return content == null ? null : new RowShape(null, new RowShape[] {content}, null);
  }
}
