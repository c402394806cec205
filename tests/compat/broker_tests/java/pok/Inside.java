package pok;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.function.Supplier;
import org.mockito.Mockito;

/** Stands for a part of the broker's process, which a gateway does not have: whoever asks it is told so, and noted. */
public final class Inside {
    private static final Set<String> ASKED = new ConcurrentSkipListSet<>();

    public static final class NotInAGateway extends RuntimeException {
        NotInAGateway(String asked) {
            super(asked + " is inside of a broker");
        }
    }

    private Inside() {
    }

    /** An object of which only the methods in {@code known} answer. */
    public static <T> T of(Class<T> type, Map<String, Supplier<Object>> known) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call -> {
            String method = call.getMethod().getName();
            Supplier<Object> answer = known.get(method);
            if (answer != null) {
                return answer.get();
            }
            if (method.equals("toString")) {
                return type.getSimpleName() + " of no broker";
            }
            throw refusal(type.getSimpleName() + "." + method);
        }));
    }

    public static NotInAGateway refusal(String asked) {
        ASKED.add(asked);
        return new NotInAGateway(asked);
    }

    /** What was asked for since the last call. */
    static String asked() {
        String found = String.join(", ", ASKED);
        ASKED.clear();
        return found;
    }
}
