package org.flinkskills.bridge.waits;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.flinkskills.bridge.frames.Frame;
import org.flinkskills.bridge.outputs.RecordFormat;

/**
 * Record of the side output {@code waits} for a wait that ended with its turn, as the records of
 * workers ({@code flink_skills/agents/rows/wait_record.py}). The state has neither the question nor
 * its payload: the record of the question has them, under the same id.
 */
final class WaitRecord {
  private static final String TAG = "waits";

  private WaitRecord() {}

  /** Return the record, or a row of the table of waits, or nothing without such a table. */
  static List<Frame.Output> outputs(
      String planJson, String key, String id, WaitState.Wait wait, long now) throws IOException {
    RecordFormat format = new RecordFormat(planJson);
    Map<String, Object> record = new LinkedHashMap<>();
    record.put("wait_id", id);
    record.put("status", "cancelled");
    record.put("agent", format.agent());
    record.put("key", RecordFormat.plainKey(key));
    record.put("turn", wait.turn() + 1);
    record.put("kind", wait.isIdOnly() ? "approval" : "wait");
    record.put("name", wait.name());
    record.put("question", "");
    record.put("payload", null);
    record.put("tool", "");
    record.put("arguments", null);
    record.put("deadline", wait.deadline() == WaitState.NO_DEADLINE ? null : wait.deadline());
    record.put("since", wait.since());
    record.put("attempt", null);
    record.put("answer", null);
    record.put("by", "");
    record.put("at", now);
    return format.encode(TAG, record);
  }
}
