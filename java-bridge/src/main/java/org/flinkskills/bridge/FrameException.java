package org.flinkskills.bridge;

import java.io.IOException;

/** A frame that cannot be read, or must not be sent. */
final class FrameException extends IOException {
  private static final long serialVersionUID = 1L;

  FrameException(String message) {
    super(message);
  }
}
