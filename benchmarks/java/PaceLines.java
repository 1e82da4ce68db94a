import java.time.Instant;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.functions.RichMapFunction;

/**
 * Sends lines {@code KEY TAB {…}} at a rate per second, whatever the job can take, and adds to each when it
 * was due, in nanoseconds since 1970, as the field {@code due}. The first {@code slow} lines have a tenth of
 * the rate, so that no backlog of the start is measured.
 */
public class PaceLines extends RichMapFunction<String, String> {
  private final int slow;
  private final double rate;
  private transient long due;
  private transient int sent;

  public PaceLines(int slow, double rate) {
    this.slow = slow;
    this.rate = rate;
  }

  @Override
  public String map(String line) {
    due = sent == 0 ? now() : due + (long) (1e9 / (sent < slow ? rate / 10 : rate));
    sent++;
    for (long left = due - now(); left > 0; left = due - now()) {
      LockSupport.parkNanos(left);
    }
    int begin = line.indexOf('{') + 1;
    return line.substring(0, begin) + "\"due\": " + due + ", " + line.substring(begin);
  }

  private static long now() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000_000L + now.getNano();
  }
}
