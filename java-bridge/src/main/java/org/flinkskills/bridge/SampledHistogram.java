package org.flinkskills.bridge;

import org.apache.flink.metrics.Histogram;
import org.apache.flink.metrics.HistogramStatistics;
import org.apache.flink.runtime.metrics.DescriptiveStatisticsHistogram;

/**
 * Histogram of durations that workers measure. It counts all of them, and its statistics are those
 * of the last thousand samples.
 */
final class SampledHistogram implements Histogram {
  private static final int KEPT = 1000;

  private final DescriptiveStatisticsHistogram samples = new DescriptiveStatisticsHistogram(KEPT);
  private volatile long count;

  /** Add {@code number} values, some of them as samples. Only one thread calls this. */
  void update(long number, long[] known) {
    for (long value : known) {
      samples.update(value);
    }
    count = count + number;
  }

  @Override
  public void update(long value) {
    update(1, new long[] {value});
  }

  @Override
  public long getCount() {
    return count;
  }

  @Override
  public HistogramStatistics getStatistics() {
    return samples.getStatistics();
  }
}
