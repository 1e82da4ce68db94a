package org.flinkskills.bridge.streams;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.FilterFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.runtime.checkpoint.OperatorState;
import org.apache.flink.runtime.checkpoint.metadata.CheckpointMetadata;
import org.apache.flink.runtime.state.IncrementalKeyedStateHandle;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.SavepointKeyedStateHandle;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.StateBackendLoader;
import org.apache.flink.state.api.OperatorIdentifier;
import org.apache.flink.state.api.SavepointReader;
import org.apache.flink.state.api.functions.KeyedStateReaderFunction;
import org.apache.flink.state.api.runtime.SavepointLoader;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.typeinfo.python.PickledByteArrayTypeInfo;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;
import org.apache.flink.util.DynamicCodeLoadingException;
import org.flinkskills.bridge.table.PythonPickle;
import org.flinkskills.bridge.turns.KeyedTurns;
import org.flinkskills.bridge.turns.StateFormat;
import org.flinkskills.bridge.waits.KeyedWaits;

/** Reader of the keyed state of agents in a savepoint or checkpoint. */
final class SavepointKeys {
  private static final byte[] NOTHING = {};

  private SavepointKeys() {}

  /**
   * Return the names of the operators with keyed state, by their uids. An operator without uid has
   * its hash instead.
   */
  static Map<String, String> operators(String path) throws IOException {
    CheckpointMetadata metadata = SavepointLoader.loadSavepointMetadata(path);
    Map<String, String> found = new TreeMap<>();
    for (OperatorState state : metadata.getOperatorStates()) {
      boolean keyed =
          state.getSubtaskStates().values().stream()
              .anyMatch(of -> !of.getManagedKeyedState().isEmpty());
      if (keyed) {
        String id = state.getOperatorID().toHexString();
        found.put(state.getOperatorUid().orElse(id), state.getOperatorName().orElse(id));
      }
    }
    return found;
  }

  /**
   * Return a pickled dict for each key: {@code key}, its canonical string; {@code turns} that have
   * ended; {@code pending}, the events that have not (the first one's turn may have started);
   * {@code journal}, the finished steps of that turn; {@code session}, its chunks; {@code waits},
   * the waits of all turns and the answers without a question; {@code journals}, the steps of the
   * waiting turns that other turns have overtaken.
   *
   * @param only the key to read; null means all
   * @param expiring whether the state has a time to live, which is a part of its format
   * @param backend one of {@link #backends}
   */
  static DataStream<byte[]> read(
      StreamExecutionEnvironment env,
      String path,
      String uid,
      String only,
      boolean expiring,
      String backend)
      throws IOException {
    return SavepointReader.read(env, path, backend(backend))
        .readKeyedState(
            OperatorIdentifier.forUid(uid),
            new Reader(only, expiring),
            Types.STRING,
            PickledByteArrayTypeInfo.PICKLED_BYTE_ARRAY_TYPE_INFO)
        .filter(new IsSomething());
  }

  /**
   * Return the state backends that may be able to read a savepoint or checkpoint. All backends read
   * the canonical format, and RocksDB reads its own files. Other files of a checkpoint do not
   * identify their backend.
   */
  static List<String> backends(String path) throws IOException {
    List<KeyedStateHandle> handles =
        SavepointLoader.loadSavepointMetadata(path).getOperatorStates().stream()
            .flatMap(operator -> operator.getStates().stream())
            .flatMap(subtask -> subtask.getManagedKeyedState().stream())
            .toList();
    if (handles.stream().anyMatch(IncrementalKeyedStateHandle.class::isInstance)) {
      return List.of("rocksdb");
    }
    if (handles.stream().allMatch(SavepointKeyedStateHandle.class::isInstance)) {
      return List.of("hashmap");
    }
    return List.of("hashmap", "rocksdb");
  }

  private static StateBackend backend(String type) throws IOException {
    Configuration wanted = new Configuration();
    wanted.set(StateBackendOptions.STATE_BACKEND, type);
    try {
      return StateBackendLoader.loadStateBackendFromConfig(
          wanted, SavepointKeys.class.getClassLoader(), null);
    } catch (DynamicCodeLoadingException e) {
      throw new IOException("Flink cannot load the state backend " + type, e);
    }
  }

  private static final class Reader extends KeyedStateReaderFunction<String, byte[]> {
    private static final long serialVersionUID = 1L;

    private final String only;
    private final boolean expiring;
    private transient KeyedTurns state;
    private transient KeyedWaits waits;

    Reader(String only, boolean expiring) {
      this.only = only;
      this.expiring = expiring;
    }

    @Override
    public void open(OpenContext context) {
      state = KeyedTurns.ofSavepoint(getRuntimeContext(), expiring);
      waits = KeyedWaits.ofSavepoint(getRuntimeContext());
    }

    @Override
    public void readKey(String key, Context context, Collector<byte[]> out) throws Exception {
      boolean isMarker = StateFormat.isMarker(key);
      if (isMarker) {
        state.checkMarker();
      }
      if (isMarker || only != null && !only.equals(key)) {
        // Flink's reader returns null for a key without a collected value, and fails.
        out.collect(NOTHING);
        return;
      }
      Row row = Row.withNames();
      row.setField("key", key);
      row.setField("turns", state.turnsDone());
      row.setField("pending", state.unfinished());
      row.setField("journal", state.journal());
      row.setField("session", state.session().chunks());
      row.setField("waits", waitRows());
      List<List<byte[]>> journals = new ArrayList<>();
      for (long turn : waits.turns().keySet()) {
        journals.add(waits.content(turn).journal());
      }
      row.setField("journals", journals);
      out.collect(PythonPickle.dumps(row, null));
    }

    private List<Row> waitRows() throws Exception {
      List<Row> rows = new ArrayList<>();
      waits
          .all()
          .forEach(
              (id, wait) -> {
                Row row = Row.withNames();
                row.setField("id", id);
                row.setField("status", wait.status().name());
                row.setField("turn", wait.turn());
                row.setField("answered", wait.answer() != null);
                rows.add(row);
              });
      return rows;
    }
  }

  private static final class IsSomething implements FilterFunction<byte[]> {
    private static final long serialVersionUID = 1L;

    @Override
    public boolean filter(byte[] value) {
      return value.length > 0;
    }
  }
}
