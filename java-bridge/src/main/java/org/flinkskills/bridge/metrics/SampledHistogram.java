package org.flinkskills.bridge.metrics;

import java.util.Arrays;
import org.apache.flink.metrics.Histogram;
import org.apache.flink.metrics.HistogramStatistics;
import org.apache.flink.runtime.metrics.DescriptiveStatisticsHistogramStatistics;

/**
 * Histogram of values that workers measure, fractions included. It counts all of them, and its
 * statistics are those of the last thousand samples.
 */
final class SampledHistogram implements Histogram {
  private static final int MAX_SAMPLES = 1000;

  private final double[] samples = new double[MAX_SAMPLES];
  private int size;
  private int next;
  private long count;

  /** Add {@code number} values, some of them as samples. */
  synchronized void update(long number, double[] sampled) {
    for (double value : sampled) {
      samples[next] = value;
      next = (next + 1) % MAX_SAMPLES;
      size = Math.min(size + 1, MAX_SAMPLES);
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
    return new DescriptiveStatisticsHistogramStatistics(Arrays.copyOf(samples, size));
  }
}
