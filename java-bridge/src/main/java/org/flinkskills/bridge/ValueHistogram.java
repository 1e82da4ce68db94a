package org.flinkskills.bridge;

import java.util.Arrays;
import org.apache.flink.metrics.Histogram;
import org.apache.flink.metrics.HistogramStatistics;
import org.apache.flink.runtime.metrics.DescriptiveStatisticsHistogramStatistics;

/**
 * A histogram of numbers with fractions, which Flink's own histograms do not have: it counts all of
 * them, and its statistics are those of the last thousand that it was given.
 */
final class ValueHistogram implements Histogram {
  private static final int KEPT = 1000;

  private final double[] ring = new double[KEPT];
  private int kept;
  private int next;
  private long count;

  /** Adds {@code number} values, of which some are known. */
  synchronized void update(long number, double[] known) {
    for (double value : known) {
      ring[next] = value;
      next = (next + 1) % KEPT;
      kept = Math.min(kept + 1, KEPT);
    }
    count += number;
  }

  @Override
  public void update(long value) {
    update(1, new double[] {value});
  }

  @Override
  public synchronized long getCount() {
    return count;
  }

  @Override
  public synchronized HistogramStatistics getStatistics() {
    return new DescriptiveStatisticsHistogramStatistics(Arrays.copyOf(ring, kept));
  }
}
