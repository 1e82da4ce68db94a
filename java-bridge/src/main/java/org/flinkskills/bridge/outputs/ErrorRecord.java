package org.flinkskills.bridge.outputs;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.flinkskills.bridge.frames.Frame;
import org.flinkskills.bridge.frames.Frames;

/**
 * Error record of a turn that no worker can end, of an answer that no turn uses, or of a control
 * record without an effect. It has the fields that the TaskManager has: agent, key, turn and error,
 * as the records of workers ({@code flink_skills/agents/turn/turn_record.py}), and neither the
 * event nor the calls of the turn.
 */
public final class ErrorRecord {
  private static final String TAG = "errors";
  private static final int MAX_ID_LENGTH = 200;

  private final RecordFormat format;

  /** The key; null for a control record. */
  private final String key;

  /** The number of the turn; null for an answer to an unknown turn, and for a control record. */
  private final Long turn;

  private final String reason;

  private ErrorRecord(String planJson, String key, Long turn, String reason)
      throws JsonProcessingException {
    this.format = new RecordFormat(planJson);
    this.key = key;
    this.turn = turn;
    this.reason = reason;
  }

  /**
   * Return the record of an answer that no turn uses.
   *
   * @param turn the number of the turn of the wait; null if it is unknown
   */
  public static ErrorRecord ofAnswer(
      String planJson, String key, Long turn, String waitId, String reason)
      throws JsonProcessingException {
    String id =
        waitId.length() <= MAX_ID_LENGTH ? waitId : waitId.substring(0, MAX_ID_LENGTH) + "…";
    return new ErrorRecord(
        planJson, key, turn, String.format("the answer to wait '%s' is not used. %s", id, reason));
  }

  /** Return the record of a control record that has no effect, or not the intended one. */
  public static ErrorRecord ofControl(String planJson, String reason)
      throws JsonProcessingException {
    return new ErrorRecord(planJson, null, null, reason);
  }

  /** Return the record of a turn whose workers crashed instead of returning one. */
  public static ErrorRecord ofCrashes(String planJson, String key, long turn, int crashes)
      throws JsonProcessingException {
    String reason =
        String.format(
            "the turn crashed its worker process %d times, and no worker returned its error record:"
                + " read the reason in the TaskManager's log, before each line 'Restarting'",
            crashes);
    return new ErrorRecord(planJson, key, turn, reason);
  }

  /** Return the record of a turn that is too large for a frame. */
  public static ErrorRecord ofSize(String planJson, String key, long turn, long bytes)
      throws JsonProcessingException {
    String reason =
        String.format(
            "the event, the session and the finished steps of the turn have %d bytes, and a worker"
                + " accepts at most %d; pass large data by path or object key",
            bytes, Frames.MAX_FRAME_BYTES);
    return new ErrorRecord(planJson, key, turn, reason);
  }

  /** Return the message for the log and for a job that fails. */
  public String message() {
    return String.format("key %s, turn %d failed: %s", key, turn, reason);
  }

  /** Return the class and the message of the error, as in the record. */
  public String error() {
    return (key == null ? "ConfigError: " : "TurnError: ") + reason;
  }

  /** Return true if a failed turn fails the job. */
  public boolean failsJob() {
    return format.option("skills.turn.on-error").equals("fail");
  }

  /** Return the record, or a row of the table of errors, or nothing without such a table. */
  public List<Frame.Output> outputs() throws IOException {
    Map<String, Object> usage = new LinkedHashMap<>();
    for (String name : List.of("input_tokens", "output_tokens", "requests")) {
      usage.put(name, 0);
    }
    Map<String, Object> record = new LinkedHashMap<>();
    record.put("agent", format.agent());
    record.put("key", key == null ? null : RecordFormat.plainKey(key));
    record.put("turn", turn);
    record.put("output", null);
    record.put("error", error());
    record.put("skills", List.of());
    record.put("tool_calls", List.of());
    record.put("usage", usage);
    record.put("event", null);
    return format.encode(TAG, record);
  }
}
