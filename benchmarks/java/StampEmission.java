import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;

/**
 * Writes, for each output, when its turn began, when it ended and when it arrived here, in nanoseconds
 * since 1970. The turn puts the first two into its output as {@code @BEGIN:END@}.
 */
public class StampEmission extends RichMapFunction<byte[], byte[]> {
  private final String folder;
  private transient BufferedWriter file;

  public StampEmission(String folder) {
    this.folder = folder;
  }

  @Override
  public void open(OpenContext context) throws Exception {
    int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
    file = Files.newBufferedWriter(Path.of(folder, "stamps-" + subtask + ".csv"));
  }

  @Override
  public byte[] map(byte[] output) throws Exception {
    Instant now = Instant.now();
    String text = new String(output, StandardCharsets.ISO_8859_1);
    int first = text.indexOf('@');
    int last = text.indexOf('@', first + 1);
    file.write(text.substring(first + 1, last).replace(':', ','));
    file.write("," + (now.getEpochSecond() * 1_000_000_000L + now.getNano()) + "\n");
    return output;
  }

  @Override
  public void close() throws Exception {
    if (file != null) {
      file.close();
    }
  }
}
